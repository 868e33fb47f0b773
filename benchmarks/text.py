"""Compare the operations on texts with nlpaug and TextAttack on the same reviews, on one core; and measure Apertium.

    python benchmarks/text.py --model FOLDER        # a folder with config.json, tokenizer.json and *.safetensors

Reviews of IMDb are joined until they have 512 tokens. outspan draws a plan, applies it to tokens and assembles the batch. The
tokens are made once per training and timed separately. The spellings and synonyms of a word are made when they are first
needed, so the first round is slower. The others work on texts, one at a time; tokenizing their output is not timed. They
change the same fraction of the words, with their fastest settings (text_peers.py, which also has their installation).

In each round each operation and its peers follow one another. Speeds are medians of the rounds; `times_as_fast` is the median
of the ratios to the faster peer, each within a round. `casing` needs a tokenizer that sees the case: a byte-level BPE of 30,000
tokens is made from the reviews. protected_replacement, punctuation_insertion, casing and sentence_crop have no counterpart in
the two libraries.

Every operation is also applied again with the same plan in another order, and the fraction of short sentences that it leaves
unchanged is counted; for operations on sentences that of two sentences. With --apertium, the speed of Apertium is measured, and
the rest of the result is kept. Writes results/text-cpu.json.
"""

import argparse
import gc
import json
import os
import resource
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

import torch
from machine import ROOT, machine
from text_peers import Augment, make_peers

from outspan import Plan, rng, uniform
from outspan.data.sets import load
from outspan.files import write_json
from outspan.policies.batch import draw_and_execute
from outspan.text.backtranslation import Apertium
from outspan.text.documents import Documents
from outspan.text.executor import PadTokens, apply
from outspan.text.models import load_tokenizer
from outspan.text.segments import sentences
from outspan.text.tokenizer import Tokenizer, wrap_tokenizer
from outspan.text.tokens import Encoded, encode
from outspan.transforms.table import TEXT_SETS, TEXT_TRANSFORMS

BATCH, ROUNDS = 64, 5  # batch size; rounds
PEER_SECONDS = 2.0  # for each peer in a round
TIMED = [name for name, transform in TEXT_TRANSFORMS.items() if transform.needs not in ("cache", "proposals")]
SHORT = 2_000  # sentences, of which those that stay unchanged are counted


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


def plans(name: str, count: int) -> list[tuple[torch.Tensor, Plan]]:
    """Return the rows and a plan with one operation for each batch."""
    propose = uniform(1, transforms=(name,), probability=1.0)
    starts = range(0, count, BATCH)
    rows = [torch.arange(start, min(start + BATCH, count)) for start in starts]
    return [(some, propose(len(some), rng=rng.generator(0, "augment", step))) for step, some in enumerate(rows)]


def ours(split: Encoded, name: str, count: int) -> float:
    """Return reviews per second: draw a plan, apply it and assemble the batch."""
    began = time.perf_counter()
    for rows, plan in plans(name, count):
        [(passages, _)] = split.batches([rows % len(split)], torch.device("cpu"))
        apply(passages, plan)
    return count / (time.perf_counter() - began)


def differences(split: Encoded, name: str, count: int) -> int:
    """Return how many of the first reviews differ if their rows of the plan are applied again, in another order."""
    wrong = 0
    for rows, plan in plans(name, count):
        [(passages, _)], back = split.batches([rows % len(split)], torch.device("cpu")), torch.arange(len(rows)).flip(0)
        [(other, _)] = split.batches([rows[back] % len(split)], torch.device("cpu"))
        moved = Plan.of([[name]] * len(rows), levels=plan.levels[back].tolist(), places=plan.places[back].tolist())
        wrong += int((apply(passages, plan)[back] != apply(other, moved)).any(dim=1).sum())
    return wrong


def theirs(augment: Augment, texts: Iterable[str]) -> float:
    """Return reviews per second of a peer, which works for some seconds, at least on one review."""
    gc.collect()
    gc.freeze()  # peers make many objects; they should not wait for the collector to look through those of others
    began, seconds, count = time.perf_counter(), 0.0, 0
    for count, text in enumerate(texts, 1):  # noqa: B007
        augment(text)
        if (seconds := time.perf_counter() - began) > PEER_SECONDS:
            break
    return count / seconds


def unchanged(split: Encoded, names: Sequence[str]) -> dict[str, float]:
    """Return the fraction of sentences that stay as they are, after the first draw and after all draws."""
    propose, counts = uniform(1, transforms=names, probability=1.0), {"first draw": 0, "last draw": 0}
    for step, rows in enumerate(torch.arange(min(SHORT, len(split))).split(BATCH)):
        [(passages, _)] = split.batches([rows], torch.device("cpu"))
        first = propose(len(rows), rng=rng.generator(0, "augment", step, 0))
        counts["first draw"] += int(PadTokens().augment(passages, first).unchanged().sum())

        def draw(attempts: range, count: int = len(rows), step: int = step) -> Plan:
            return Plan.cat([propose(count, rng=rng.generator(0, "augment", step, attempt)) for attempt in attempts])

        drawn = draw_and_execute(passages, draw, PadTokens())
        counts["last draw"] += 0 if drawn.unchanged is None else drawn.unchanged[0]
    return {key: value / min(SHORT, len(split)) for key, value in counts.items()}


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


def train_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """Return a byte-level BPE of 30,000 tokens made from texts, which sees the case."""
    from tokenizers import ByteLevelBPETokenizer

    backend = ByteLevelBPETokenizer()
    backend.train_from_iterator(texts, vocab_size=30_000, special_tokens=["<pad>"], show_progress=False)
    return wrap_tokenizer(backend._tokenizer, 0)  # without the wrapper of the older interface


def split_of(name: str, splits: Mapping[bool, Encoded]) -> Encoded:
    """Return the reviews for an operation: with a tokenizer that sees the case if it needs one."""
    return splits[TEXT_TRANSFORMS[name].needs == "case"]


def time_all(splits: Mapping[bool, Encoded], pieces: list[str], count: int) -> dict[str, Any]:
    """Return reviews per second of every operation and its peers, which take turns."""
    vocabulary = sorted({word for piece in pieces[:2000] for word in piece.split()})
    (ROOT / "build").mkdir(exist_ok=True)
    made = list(make_peers(pieces[:500], vocabulary, ROOT / "build"))
    cut = [" ".join(piece.split()[:390]) for piece in pieces]  # about 512 tokens
    cut = [text for text in cut if len(sentences(text)) > 1]  # nlpaug's RandomSentAug fails for others
    rates: dict[str, list[float]] = {}
    ratios: dict[str, dict[str, list[float]]] = {name: {} for name in TIMED}
    load = [os.getloadavg()[0]]
    for turn in range(ROUNDS):
        few = cut[turn * len(cut) // ROUNDS :]
        for name in TIMED:
            own = ours(split_of(name, splits), name, count)
            rates.setdefault(f"outspan {name}", []).append(own)
            for of, library, augment in made:
                if of == name and not isinstance(augment, str):
                    rates.setdefault(f"{library} {name}", []).append(theirs(augment, few))
                    ratios[name].setdefault(library, []).append(own / rates[f"{library} {name}"][-1])
        load.append(os.getloadavg()[0])
        print(f"round {turn + 1} of {ROUNDS}", flush=True)
    replayed = min(count, 2_000)
    return {
        "reviews_a_second": {name: statistics.median(values) for name, values in rates.items()},
        "rounds": rates,
        "times_as_fast": {name: min(map(statistics.median, of.values())) for name, of in ratios.items() if of},
        "times_as_fast_in_first_round": {name: min(values[0] for values in of.values()) for name, of in ratios.items() if of},
        "left_out": {f"{library} {name}".strip(): why for name, library, why in made if isinstance(why, str)},
        "load_average": load,
        "replay": {
            "reviews": replayed,
            "differ": {name: differences(split_of(name, splits), name, replayed) for name in TIMED},
        },
    }


def count_unchanged(texts: list[str], tokenizers: Mapping[bool, Tokenizer]) -> dict[str, dict[str, float]]:
    """Return `unchanged` for each operation, and for the default transforms."""
    some = [sentences(text) for text in texts[:: max(1, len(texts) // SHORT)]]
    single = [several[0] for several in some if len(several[0].split()) >= 4]
    pairs = ["\n".join(several[:2]) for several in some if len(several) > 1]  # what operations on sentences need
    of_stage = {
        stage: {case: encode_all(short, tokenizer) for case, tokenizer in tokenizers.items()}
        for stage, short in (("words", single), ("sentences", pairs))
    }
    of_stage["tokens"] = of_stage["words"]
    counts = {name: unchanged(split_of(name, of_stage[TEXT_TRANSFORMS[name].stage]), [name]) for name in TIMED}
    return counts | {"the default transforms": unchanged(of_stage["words"][False], TEXT_SETS["words"])}


def encode_all(texts: list[str], tokenizer: Tokenizer) -> Encoded:
    """Return texts with two classes, of at most 512 tokens."""
    return encode(Documents(texts, torch.arange(len(texts)) % 2), tokenizer, length=512)


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--reviews", type=int, default=25_000)
    parser.add_argument("--result", type=Path, default=ROOT / "results/text-cpu.json")
    parser.add_argument("--apertium", action="store_true", help="measure only Apertium, and keep the rest of the result")
    options = parser.parse_args()
    torch.set_num_threads(1)
    train = load("imdb").train
    assert isinstance(train, Documents)
    texts = list(train.texts)
    before = json.loads(options.result.read_text()) if options.result.exists() else {}
    if options.apertium:
        write_json(options.result, before | {"apertium": apertium(texts, 5_000)})
        return
    pieces = join(texts, 480)[: options.reviews]
    tokenizers = {False: load_tokenizer(options.model), True: train_tokenizer(texts[:2_000])}
    began = time.perf_counter()
    splits = {False: encode_all(pieces, tokenizers[False])}
    prepared = time.perf_counter() - began
    splits[True] = encode_all(pieces, tokenizers[True])
    result = {
        "machine": {**machine("nlpaug", "textattack", "nltk", "tokenizers"), "threads": 1},
        "reviews": options.reviews,
        "distinct": len(pieces),
        "of_512_tokens": float((splits[False].corpus.lengths >= 510).mean()),
        **time_all(splits, pieces, options.reviews),
        "tokens_made_once": {"seconds": prepared, "reviews_a_second": len(pieces) / prepared},
        "unchanged_sentences": count_unchanged(texts, tokenizers),
    }
    write_json(options.result, result | ({"apertium": before["apertium"]} if "apertium" in before else {}))
    for key in ("times_as_fast", "unchanged_sentences", "replay", "left_out"):
        print(key, json.dumps(result[key]))


if __name__ == "__main__":
    main()
