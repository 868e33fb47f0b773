"""Commands for text: they fill the cache that training reads."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from outspan.cli.output import echo
from outspan.cli.progress import training_progress

if TYPE_CHECKING:
    from outspan.text.cache import OnBatch
    from outspan.text.documents import Documents

app = typer.Typer(help="Back-translate a corpus of text, or propose words for it.", no_args_is_help=True)


@app.callback()
def text() -> None:
    """Back-translate a corpus of text, or propose words for it."""


@app.command("backtranslate")
def backtranslate_command(
    corpus: Annotated[str, typer.Argument(help="imdb, a .csv, .tsv or .jsonl file, or a folder, as in train.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Cache file. Sentences in it are not translated again.")],
    engine: Annotated[
        str, typer.Option(help="Translation engine: apertium (rule-based, offline) or marian (neural).")
    ] = "apertium",
    pair: Annotated[str, typer.Option(help="Language pair. For marian also two model names: FORWARD,BACKWARD.")] = "eng-spa",
    text_column: Annotated[str, typer.Option(help="Name of the text column in a table.")] = "text",
    label_column: Annotated[str, typer.Option(help="Name of the label column in a table.")] = "label",
) -> None:
    """Back-translate every training sentence and store the results in a cache.

    Ctrl-C stops. Run the same command again to resume.

    Example: outspan text backtranslate imdb -o cache.jsonl --engine apertium --pair eng-spa
    """
    from outspan.text.backtranslation import backtranslate

    def fill(sentences: Iterable[str], on_batch: "OnBatch") -> tuple[int, int]:
        return backtranslate(sentences, out, engine=engine, pair=pair, on_batch=on_batch)

    count, failed = _fill_cache(corpus, "back-translation", (text_column, label_column), fill)
    echo(f"{count:,} sentences in {out}" + (f", {failed:,} of them could not be translated" if failed else ""))


@app.command("propose")
def propose_command(
    corpus: Annotated[str, typer.Argument(help="imdb, a .csv, .tsv or .jsonl file, or a folder, as in train.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Cache file. It can be that of backtranslate.")],
    model: Annotated[
        str, typer.Option(help="Masked language model (fill-mask) of transformers: a Hub name or a folder.")
    ] = "google-bert/bert-base-uncased",
    text_column: Annotated[str, typer.Option(help="Name of the text column in a table.")] = "text",
    label_column: Annotated[str, typer.Option(help="Name of the label column in a table.")] = "label",
) -> None:
    """Store the words that a masked language model proposes for each word, for the transform masked_replacement.

    Ctrl-C stops. Run the same command again to resume.

    Example: outspan text propose imdb -o cache.jsonl --model google-bert/bert-base-uncased
    """
    from outspan.text.masked import propose_words

    def fill(sentences: Iterable[str], on_batch: "OnBatch") -> tuple[int, int]:
        return propose_words(sentences, out, model=model, on_batch=on_batch)

    count, failed = _fill_cache(corpus, "proposing words", (text_column, label_column), fill)
    echo(f"words for {count:,} sentences in {out}" + (f", {failed:,} of them have the mask itself" if failed else ""))


def _fill_cache(
    corpus: str, purpose: str, columns: tuple[str, str], fill: "Callable[[Iterable[str], OnBatch], tuple[int, int]]"
) -> tuple[int, int]:
    """Fill a cache with all training sentences of a corpus, and show the progress."""
    from outspan.data.sets import check_data_holds, load
    from outspan.text.segments import PAIR, sentences
    from outspan.training import Progress, Stopped

    data = load(corpus, columns=columns)  # a name that does not exist is refused here
    check_data_holds(corpus, "texts", purpose)
    texts = cast("Documents", data.train).texts
    with training_progress() as on_step:

        def show(done: int, total: int) -> bool | None:
            stop = on_step(Progress(done, total, message=f"{done:,} of {total:,} sentences"))
            if stop and done < total:
                raise Stopped(f"stopped after {done:,} of {total:,} sentences; run the same command again to resume")
            return None

        return fill((sentence for text in texts for part in text.split(PAIR) for sentence in sentences(part)), show)
