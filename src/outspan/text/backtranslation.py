"""Back-translation: engines behind one call, and the cache of sentences that training reads."""

import os
import re
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outspan.messages import first_line, unknown
from outspan.text.cache import Engine, OnBatch, fill_cache, read_sentences

_IN_FLIGHT = 64  # number of sentences that may be inside the pipelines when one dies
_TIMEOUT = 60  # seconds without an answer after which a pipeline counts as dead
_MAX_FAILURES = 3  # number of failures in a row after which a pipeline is tested


class Apertium:
    """Rule-based translation with Apertium (offline, Debian packages): two connected pipelines, which run until `close`.

    Every sentence ends with its number, which Apertium passes on as formatting. So a lost or displaced sentence is detected.
    """

    _SPECIAL = re.compile(r"([\\\[\]{}^$/@<>])")
    _ESCAPED = re.compile(r"\\(.)")
    _NUMBER = re.compile(r"\s*\[(\d+)\]\s*")

    def __init__(self, pair: str) -> None:
        there, _, back = pair.partition("-")
        self.modes = [find_mode(f"{there}-{back}"), find_mode(f"{back}-{there}")]
        self.processes: list[Any] = []
        self.writer: threading.Thread | None = None

    def __call__(self, sentences: Sequence[str]) -> Iterator[str | None]:
        """Translate. If a pipeline dies, it is restarted, and the sentences that were in it are sent one by one."""
        done = lost = 0
        while done < len(sentences):
            for answer in self._translate(sentences[done:]):
                yield answer
                done += 1
            for sentence in sentences[done : done + _IN_FLIGHT]:  # one of these is the cause
                answer = next(self._translate([sentence]), None)
                lost = 0 if answer is not None else lost + 1
                if lost and lost % _MAX_FAILURES == 0 and next(self._translate(["It is good."]), None) is None:
                    raise ValueError(f"the engine does not answer, not even to 'It is good.' (at sentence {sentence!r})")
                yield answer
                done += 1

    def close(self) -> None:
        """End both pipelines: by closing their input, or at once if they are still being written to."""
        if not self.processes:
            return
        timeout = 0 if self.writer is not None and self.writer.is_alive() else 2
        if timeout:
            with suppress(OSError):
                self.processes[0].stdin.close()
        for process in self.processes:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for pipe in (self.processes[0].stdin, self.processes[1].stdout):
            with suppress(OSError):
                pipe.close()
        self.processes = []

    def _start(self) -> None:
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "start_new_session": True}
        source: Any = subprocess.PIPE
        for mode in self.modes:
            process = subprocess.Popen(_pipeline(mode), stdin=source, **options)  # noqa: S603, the command is Apertium's own
            self.processes.append(process)
            source = process.stdout
        self.processes[0].stdout.close()  # the second process has it

    def _translate(self, sentences: Sequence[str]) -> Iterator[str]:
        """Translate with the pipelines. If one dies or answers out of order, end both and stop."""
        if not self.processes:
            self._start()
        into, out = self.processes[0].stdin, self.processes[1].stdout
        # A thread writes while this one reads: otherwise both would wait as soon as both pipes are full.
        lines = (self._SPECIAL.sub(r"\\\1", " ".join(text.split())) + f"[{i}]\0" for i, text in enumerate(sentences))
        self.writer = threading.Thread(target=_write, args=(into, lines), daemon=True)
        self.writer.start()
        number, rest = 0, b""
        while number < len(sentences):
            ready = select.select([out], [], [], _TIMEOUT)[0]
            chunk = os.read(out.fileno(), 1 << 16) if ready else b""
            *whole, rest = (rest + chunk).split(b"\0")
            for answer in whole:
                back = self._read(number, answer.decode(errors="replace"))
                if back is None:
                    return self.close()
                yield back
                number += 1
            if not chunk:
                return self.close()
        return None

    def _read(self, number: int, answer: str) -> str | None:
        numbers = self._NUMBER.findall(answer)
        if numbers != [str(number)]:
            return None
        return " ".join(self._ESCAPED.sub(r"\1", self._NUMBER.sub(" ", answer)).split())


def find_mode(pair: str) -> Path:
    """Return the mode file of Apertium for a pair. If it is missing, the error says how to install it."""
    languages = "-".join(sorted(pair.split("-")))
    path = Path("/usr/share/apertium/modes") / f"{pair}.mode"
    if shutil.which("apertium-wblank-mode") is None or shutil.which("lt-proc") is None or not path.exists():
        how = f"apt-get install --no-install-recommends apertium apertium-{languages}"
        raise ValueError(f"Apertium for {pair} is not installed (no {path}): {how}")
    return path


def _pipeline(mode: Path) -> list[str]:
    """Return the command of a mode that answers at each null byte. Unknown words are not marked (-n)."""
    command = ["apertium-wblank-mode", "-z", str(mode)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return ["bash", "-c", done.stdout, "apertium", "-n", ""]


def _write(into: Any, lines: Iterable[str]) -> None:
    with suppress(OSError, ValueError):  # the reader notices that a pipeline has died
        for line in lines:
            into.write(line.encode())
        into.flush()


class Marian:
    """Neural translation with Marian models of transformers: two names, or folders of safetensors weights."""

    def __init__(self, pair: str) -> None:
        try:
            import transformers  # noqa: F401  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ValueError("the engine marian needs transformers: pip install 'outspan[text]'") from None
        there, _, back = pair.partition("-")
        names = (
            pair.split(",") if "," in pair else [f"Helsinki-NLP/opus-mt-{there}-{back}", f"Helsinki-NLP/opus-mt-{back}-{there}"]
        )
        self.models = [_load_marian(name) for name in names]

    def __call__(self, sentences: Sequence[str]) -> Iterator[str | None]:
        """Translate in batches, by greedy decoding."""
        for i in range(0, len(sentences), 64):
            texts = list(sentences[i : i + 64])
            for tokenizer, model in self.models:
                inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True).to(model.device)
                texts = tokenizer.batch_decode(model.generate(**inputs, num_beams=1, do_sample=False), skip_special_tokens=True)
            yield from (text.strip() for text in texts)

    def close(self) -> None:
        """Do nothing: there are no processes to end."""


def _load_marian(name: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer  # pyright: ignore[reportMissingImports]

    from outspan.devices import default_device
    from outspan.text.models import refuse_pickles

    refuse_pickles(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForSeq2SeqLM.from_pretrained(name, use_safetensors=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"marian model {name!r} cannot be loaded ({first_line(error)})") from None
    return tokenizer, model.eval().to(default_device())


ENGINES: Mapping[str, Callable[[str], Engine]] = MappingProxyType({"apertium": Apertium, "marian": Marian})


def open_engine(name: str, pair: str) -> Engine:
    """Return an engine for a pair of languages, e.g. "eng-spa". If it is not installed, the error says how to install it."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if not re.fullmatch(r"\w+-\w+", pair) and not (name == "marian" and pair.count(",") == 1):
        raise ValueError(f"a pair must be two languages, e.g. eng-spa, got {pair!r}")
    return ENGINES[name](pair)


def backtranslate(
    sentences: Iterable[str],
    out: Path,
    *,
    engine: str = "apertium",
    pair: str = "eng-spa",
    on_batch: OnBatch = lambda done, total: None,
) -> tuple[int, int]:
    """Translate the sentences that the cache does not have. Return how many sentences it has, and how many of them failed.

    Translations are appended to the cache, so that a crash loses none that was written. `on_batch` is called with the number of
    sentences done and their total. If it returns True, the work stops.
    """
    return fill_cache(sentences, out, {"engine": engine, "pair": pair}, lambda: open_engine(engine, pair), on_batch)


def read_cache(path: Path, head: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return the sentences of a cache and their back-translations. An incomplete line at the end is ignored.

    With `head` the cache must be of that engine and pair, or hold only a part of its first line.
    """
    return {text: back if back is None else str(back) for text, back in read_sentences(path, head).items()}
