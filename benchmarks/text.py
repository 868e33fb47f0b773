"""Compare the operations on texts with nlpaug and TextAttack on the same reviews, on one core; and measure Apertium.

    python benchmarks/text.py --model FOLDER        # a folder with config.json, tokenizer.json and *.safetensors

Reviews of IMDb are joined until they have 512 tokens. outspan works on tokens, which are made once per training and timed
separately. The others work on texts; tokenizing their output is not timed. All take turns in rounds; results are medians.
Every operation is also applied again with the same plan in another order, and the share of short sentences that an operation
leaves unchanged is counted; for operations on sentences that of two sentences. With --apertium, the speed of Apertium is
measured, and the rest of the result is kept. Writes results/text-cpu.json. Peers: pip install nlpaug textattack
(text_peers.py); what they cannot build without the network is left out.
"""

import argparse
import json
import os
import resource
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

import torch
from machine import ROOT, machine
from text_peers import make_peers

from outspan import Plan, rng, uniform
from outspan.data.sets import load
from outspan.files import write_json
from outspan.policies.batch import draw_and_execute
from outspan.text.backtranslation import Apertium
from outspan.text.documents import Documents
from outspan.text.executor import PadTokens, apply
from outspan.text.models import load_tokenizer
from outspan.text.segments import sentences
from outspan.text.tokens import Encoded, encode
from outspan.transforms.table import TEXT_TRANSFORMS

BATCH, ROUNDS = 64, 5  # batch size; rounds
PEER_REVIEWS = {"nlpaug": 40, "textattack": 1}  # per round: TextAttack takes many seconds per review
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


def unchanged(split: Encoded, name: str) -> dict[str, float]:
    """Return the fraction of sentences that stay as they are, after the first draw and after all draws."""
    propose, counts = uniform(1, transforms=(name,), probability=1.0), {"first draw": 0, "last draw": 0}
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


def time_all(split: Encoded, pieces: list[str], count: int) -> dict[str, Any]:
    """Return reviews per second of every operation and its peers, which take turns."""
    vocabulary = sorted({word for piece in pieces[:2000] for word in piece.split()})
    (ROOT / "build").mkdir(exist_ok=True)
    peers = list(make_peers(pieces[:500], vocabulary, ROOT / "build"))
    names = [name for name in TIMED if split.corpus.bank is None or split.corpus.bank.sees_case or name != "casing"]
    rates: dict[str, list[float]] = {}
    for turn in range(ROUNDS):
        for name in names:
            rates.setdefault(f"outspan {name}", []).append(ours(split, name, count))
        for name, library, augment in peers:
            size = PEER_REVIEWS[library]
            few = [" ".join(piece.split()[:390]) for piece in pieces[turn * size :][:size]]  # about 512 tokens
            began = time.perf_counter()
            for text in few:
                augment(text)
            rates.setdefault(f"{library} {name}", []).append(len(few) / (time.perf_counter() - began))
        print(f"round {turn + 1} of {ROUNDS}", flush=True)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    best = {name: max(medians[f"{library} {name}"] for of, library, _ in peers if of == name) for name, _, _ in peers}
    times = {name: medians[f"outspan {name}"] / rate for name, rate in best.items() if name in names}
    replayed = min(count, 2_000)
    wrong = {name: differences(split, name, replayed) for name in names}
    return {
        "reviews_a_second": medians,
        "rounds": rates,
        "times_as_fast": times,
        "replay": {"reviews": replayed, "differ": wrong},
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
    train = load("imdb").train
    assert isinstance(train, Documents)
    texts = list(train.texts)
    before = json.loads(options.result.read_text()) if options.result.exists() else {}
    if options.apertium:
        write_json(options.result, before | {"apertium": apertium(texts, 5_000)})
        return
    pieces = join(texts, 480)[: options.reviews]
    tokenizer = load_tokenizer(options.model)
    began = time.perf_counter()
    split = encode(Documents(pieces, torch.arange(len(pieces)) % 2), tokenizer, length=512)
    prepared = time.perf_counter() - began
    result = {
        "machine": {**machine("nlpaug", "textattack", "tokenizers"), "threads": 1},
        "reviews": options.reviews,
        "distinct": len(pieces),
        "of_512_tokens": float((split.corpus.lengths >= 510).mean()),
        **time_all(split, pieces, options.reviews),
        "tokens_made_once": {"seconds": prepared, "reviews_a_second": len(pieces) / prepared},
    }
    some = [sentences(text) for text in texts[:: max(1, len(texts) // SHORT)]]
    single = [several[0] for several in some if len(several[0].split()) >= 4]
    pairs = ["\n".join(several[:2]) for several in some if len(several) > 1]  # what operations on sentences need
    names = [name for name in TIMED if f"outspan {name}" in result["reviews_a_second"]]
    of_words = [name for name in names if not name.startswith("sentence")]
    result["unchanged_sentences"] = {}
    for short, ops in ((single, of_words), (pairs, [name for name in names if name not in of_words])):
        split = encode(Documents(short, torch.arange(len(short)) % 2), tokenizer, length=512)
        result["unchanged_sentences"] |= {name: unchanged(split, name) for name in ops}
    write_json(options.result, result | ({"apertium": before["apertium"]} if "apertium" in before else {}))
    for key in ("times_as_fast", "unchanged_sentences", "replay"):
        print(key, json.dumps(result[key]))


if __name__ == "__main__":
    main()
