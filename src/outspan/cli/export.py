"""The command export."""

from pathlib import Path
from typing import Annotated

import typer

from outspan.cli.options import Best
from outspan.cli.output import echo


def export_command(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    format: Annotated[
        str, typer.Option(help="onnx: one file, bytes in, probabilities out. huggingface: a folder for the Hugging Face Hub.")
    ] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="File (ONNX) or new folder to write. Default: model.onnx or huggingface in the run folder."
        ),
    ] = None,
    best: Best = False,
) -> None:
    """Write the model of a run for other programs: ONNX, or a folder for the Hugging Face Hub.

    The ONNX file is compared with the model on 256 test samples; if the probabilities differ, nothing is written. The folder
    has the weights, the configuration, for texts the tokenizer, and a model card. It is not uploaded.

    Example: outspan export runs/first --format onnx -o first.onnx

    Example: outspan export runs/first --format huggingface -o first-model
    """
    from outspan.integrations.export import export
    from outspan.training.trained import load

    trained = load(run, best=best)
    result = export(trained, out, format=format)
    if not trained.is_finished and not best:
        echo(f"outspan: {run} is not finished: step {trained.step} of {trained.steps}", err=True)
    for line in result.report:
        echo(line)
    echo(f"wrote {result.path}")
