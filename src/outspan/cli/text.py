"""Commands for text: back-translating a corpus into the cache that training reads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from outspan.cli.output import echo
from outspan.cli.progress import training_progress

if TYPE_CHECKING:
    from outspan.text.documents import Documents

app = typer.Typer(help="Back-translate a corpus of text.", no_args_is_help=True)


@app.callback()
def text() -> None:
    """Back-translate a corpus of text."""


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
    from outspan.data.sets import check_data_holds, load
    from outspan.text.backtranslation import backtranslate
    from outspan.text.segments import sentences
    from outspan.training import Progress, Stopped

    data = load(corpus, columns=(text_column, label_column))  # a name that does not exist is refused here
    check_data_holds(corpus, "texts", "back-translation")
    texts = cast("Documents", data.train).texts
    with training_progress() as on_step:

        def show(done: int, total: int) -> bool | None:
            stop = on_step(Progress(done, total, message=f"{done:,} of {total:,} sentences"))
            if stop and done < total:
                raise Stopped(f"stopped after {done:,} of {total:,} sentences; run the same command again to resume")
            return None

        count, failed = backtranslate(
            (sentence for text in texts for sentence in sentences(text)), out, engine=engine, pair=pair, on_batch=show
        )
    echo(f"{count:,} sentences in {out}" + (f", {failed:,} of them could not be translated" if failed else ""))
