"""Compare switchout and word replacement with nlpaug on the same reviews, on one core; and measure the speed of Apertium.

    python benchmarks/text.py --model FOLDER        # a folder with config.json, tokenizer.json and *.safetensors

Reviews of IMDb are joined until they have 512 tokens. outspan works on tokens, which are made once per training and timed
separately. nlpaug works on texts; tokenizing its output is not timed. All take turns in rounds; results are medians. Writes
results/text-cpu.json.
"""

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

import torch
from machine import ROOT, machine

from outspan import rng, uniform
from outspan.data.sets import load
from outspan.text.backtranslation import Apertium
from outspan.text.documents import Documents
from outspan.text.executor import apply
from outspan.text.models import load_tokenizer
from outspan.text.segments import sentences
from outspan.text.tokens import Encoded, encode

BATCH, ROUNDS, PEER_REVIEWS = 64, 5, 40  # batch size; rounds; reviews per round for nlpaug
FRACTIONS = {"switchout": 0.1, "word_replacement": 0.15}  # of the words, on average, for both libraries


def join(texts: list[str], words: int) -> list[str]:
    """Join texts to pieces of at least `words` words."""
    pieces, piece, count = [], [], 0
    for text in texts:
        piece.append(text)
        count += len(text.split())
        if count >= words:
            pieces.append("\n".join(piece))
            piece, count = [], 0
    return pieces


def ours(split: Encoded, name: str, count: int) -> float:
    """Return reviews per second: draw a plan, apply it and assemble the batch."""
    propose = uniform(1, transforms=(name,), probability=1.0)
    rows = [torch.arange(i, min(i + BATCH, count)) % len(split) for i in range(0, count, BATCH)]
    began = time.perf_counter()
    for step, (passages, _) in enumerate(split.batches(rows, torch.device("cpu"))):
        apply(passages, propose(len(passages), rng=rng.generator(0, "augment", step)))
    return count / (time.perf_counter() - began)


def nlpaugs(texts: list[str], vocabulary: list[str]) -> dict[str, Callable[[str], object]]:
    """Return the corresponding augmenters of nlpaug, for the same fraction of the words."""
    import nlpaug.augmenter.word as naw
    import nlpaug.model.word_stats as nmw

    stats = nmw.TfIdf()
    stats.train([text.split() for text in texts])
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    stats.save(str(folder))
    options = {"aug_min": 0, "aug_max": None, "tokenizer": str.split}
    switch = naw.RandomWordAug(action="substitute", target_words=vocabulary, aug_p=FRACTIONS["switchout"], **options)
    replace = naw.TfIdfAug(model_path=str(folder), action="substitute", aug_p=FRACTIONS["word_replacement"], **options)
    return {"switchout": switch.augment, "word_replacement": replace.augment}


def apertium(texts: list[str], count: int) -> dict[str, object]:
    """Return the speed of both directions, and how many sentences were lost or displaced. Some are translated again, alone."""
    unique = list(dict.fromkeys(sentence for text in texts for sentence in sentences(text)))[:count]
    engine = Apertium("eng-spa")
    try:
        list(engine(unique[:50]))  # warm-up
        began = time.perf_counter()
        translated = list(engine(unique))
        seconds = time.perf_counter() - began
        again = {i: next(engine([unique[i]])) for i in range(0, len(unique), 25)}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
    finally:
        engine.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "sentences": len(unique),
        "sentences_a_second_both_ways": len(unique) / seconds,
        "sentences_a_cpu_second": (50 + len(unique) + len(again)) / spent,  # without the time of other processes on the machine
        "load_average": os.getloadavg()[0],
        "lost": len(unique) - len(translated) + sum(back is None for back in translated),
        "asked_again_alone": len(again),
        "of_these_not_the_same": sum(translated[i] != back for i, back in again.items()),
    }


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--reviews", type=int, default=25_000)
    parser.add_argument("--result", type=Path, default=ROOT / "results/text-cpu.json")
    parser.add_argument("--apertium", action="store_true", help="measure only Apertium, and keep the rest of the result")
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = list(load("imdb").train.texts)
    rate = apertium(texts, 5_000)
    print("apertium", rate, flush=True)
    if options.apertium:
        result = json.loads(options.result.read_text()) | {"apertium": rate}
        options.result.write_text(json.dumps(result, indent=2) + "\n")
        return
    pieces = join(texts, 480)[: options.reviews]
    tokenizer = load_tokenizer(options.model)
    began = time.perf_counter()
    split = encode(Documents(pieces, torch.zeros(len(pieces), dtype=torch.int64)), tokenizer, length=512)
    prepared = time.perf_counter() - began
    full = float((split.corpus.lengths >= 510).mean())
    vocabulary = sorted({word for piece in pieces[:2000] for word in piece.split()})
    peers = nlpaugs(pieces[:2000], vocabulary)
    rates: dict[str, list[float]] = {}
    for turn in range(ROUNDS):
        for name in FRACTIONS:
            rates.setdefault(f"outspan {name}", []).append(ours(split, name, options.reviews))
            texts = [
                " ".join(piece.split()[:390]) for piece in pieces[turn * PEER_REVIEWS : (turn + 1) * PEER_REVIEWS]
            ]  # about 512 tokens
            began = time.perf_counter()
            for text in texts:
                peers[name](text)
            rates.setdefault(f"nlpaug {name}", []).append(len(texts) / (time.perf_counter() - began))
            print(name, f"{rates[f'outspan {name}'][-1]:,.0f} and {rates[f'nlpaug {name}'][-1]:,.1f} reviews/s", flush=True)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    result = {
        "machine": {**machine("nlpaug", "tokenizers"), "threads": 1},
        "reviews": options.reviews,
        "distinct": len(pieces),
        "of_512_tokens": full,
        "reviews_a_second": medians,
        "rounds": rates,
        "times_as_fast": {name: medians[f"outspan {name}"] / medians[f"nlpaug {name}"] for name in FRACTIONS},
        "tokens_made_once": {"seconds": prepared, "reviews_a_second": len(pieces) / prepared},
        "apertium": rate,
    }
    options.result.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["times_as_fast"]))


if __name__ == "__main__":
    main()
