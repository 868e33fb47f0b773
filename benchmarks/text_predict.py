"""The time that the prediction of a table takes, against a bare loop over a transformers model, for text_study.py --predict.

Both read a table, tokenize it, predict batches of rows of similar length, and write the probabilities. The bare loop has the
batch size with which it is fastest. Both take turns, one and the other first. On a CPU both have one thread, and `cpu_ratio` is
that of the CPU time, which depends less on other processes.
"""

import csv
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from machine import machine, wait
from text_sets import parts_of, read_set

import outspan
from outspan.data.dataset import Data
from outspan.text.models import load_published_tokenizer

LENGTH, ROUNDS = 512, 5
SETS = ("imdb", "imdb-2000", "sentences")  # the first one that the payload has
BATCHES = (32, 64, 128, 512)  # of the bare loop; the fastest on a tenth of the table is used


def bare(model: Any, tokenizer: Any, table: Path, out: Path, batch: int, device: torch.device) -> list[int]:
    """Read a table, predict its rows sorted by length, and write the probabilities."""
    with open(table, newline="", encoding="utf-8") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    tokens = tokenizer(texts, truncation=True, max_length=LENGTH, return_attention_mask=False)["input_ids"]
    order = sorted(range(len(tokens)), key=lambda row: len(tokens[row]))
    probabilities = torch.empty(len(tokens), 2)
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        parts = []
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            inputs = tokenizer.pad({"input_ids": [tokens[row] for row in rows]}, return_tensors="pt").to(device)
            parts.append(model(**inputs).logits.float().softmax(1))
        probabilities[order] = torch.cat(parts).cpu()
    with open(out, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["class", "p(0)", "p(1)"])
        for row in probabilities.tolist():
            writer.writerow([int(row[1] > row[0]), *row])
    return probabilities.argmax(1).tolist()


def write_table(path: Path, texts: Sequence[str]) -> Path:
    """Write a table with a column of texts."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    return path


def make_run(data: Data, model: str, folder: Path, device: torch.device) -> outspan.Trained:
    """Return a run of two steps: what it predicts does not matter."""
    rows = [torch.arange(0, len(part), max(1, len(part) // 64)) for part in (data.train, data.test)]
    few = Data("few", data.train.take(rows[0]), data.test.take(rows[1]), data.classes)
    outspan.train(out=folder, splits=few, data="imdb", model=model, policy="none", steps=2, batch=8)
    run = outspan.load(folder)
    run.model.to(device)
    return run


def measure(payload: Path, count: int) -> dict[str, Any]:
    """Return the seconds of both for a table of `count` reviews, or of their sentences, and how many classes are the same."""
    name = next(name for name in SETS if (payload / f"{name}.json.bz2").exists())
    data, device = read_set(payload / f"{name}.json.bz2"), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(1)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    model = str((payload / "model").resolve())
    tokenizer = load_published_tokenizer(model)
    tokenizer.truncation_side = "left"  # as outspan
    train, _, test = parts_of(data)
    texts = [*islice(cycle([*test.texts, *train.texts]), count)]
    seconds: dict[str, list[float]] = {"outspan": [], "bare": []}
    cpu_seconds: dict[str, list[float]] = {"outspan": [], "bare": []}
    with TemporaryDirectory() as folder:
        path = Path(folder)
        run = make_run(data, model, path / "run", device)
        few, rows = write_table(path / "few.csv", texts[: count // 10]), write_table(path / "rows.csv", texts)
        arguments = run.model.model, tokenizer
        times = {size: clock(bare, *arguments, few, path / "a.csv", size, device)[0] for size in (*BATCHES, *BATCHES)}
        size = min(times, key=lambda size: times[size])
        ours(run, few, path / "b.csv", device)
        classes: dict[str, list[Any]] = {}
        calls = {
            "bare": partial(bare, *arguments, rows, path / "a.csv", size, device),
            "outspan": partial(ours, run, rows, path / "b.csv", device),
        }
        for turn in range(ROUNDS):
            for key in sorted(calls, reverse=turn % 2 == 1):
                spent = time.process_time()
                took, classes[key] = clock(calls[key])
                seconds[key].append(took)
                cpu_seconds[key].append(time.process_time() - spent)
            print(f"round {turn + 1} of {ROUNDS}", flush=True)
    result = {
        "set": name,
        "count": count,
        "device": device.type,
        "threads": torch.get_num_threads(),
        "seconds": {key: round(statistics.median(values), 3) for key, values in seconds.items()},
        "ratio": ratio(seconds),
        "cpu_ratio": ratio(cpu_seconds),
    }
    same = sum(data.classes[int(a)] == b for a, b in zip(classes["bare"], classes["outspan"], strict=True))
    result |= {"same_classes": same / count, "bare_batch": size, "rounds": seconds, "cpu_rounds": cpu_seconds}
    return result | {"load_average": os.getloadavg()[0], "machine": machine("transformers")}


def ratio(rounds: Mapping[str, list[float]]) -> float:
    """Return the median of the ratios of both, each within a round."""
    pairs = zip(rounds["outspan"], rounds["bare"], strict=True)
    return round(statistics.median(own / other for own, other in pairs), 3)


def ours(run: outspan.Trained, table: Path, out: Path, device: torch.device) -> list[str]:
    """Predict a table with outspan, and write the probabilities."""
    predicted = outspan.predict(run, table, device=device)
    predicted.save(out)
    return predicted.classes


def clock(function: Any, *arguments: Any) -> tuple[float, Any]:
    """Return the seconds of a call, and its result."""
    wait(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    began = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - began, result
