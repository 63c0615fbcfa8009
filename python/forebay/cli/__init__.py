# SPDX-License-Identifier: Apache-2.0
"""The `forebay` command."""

import sys
from collections.abc import Sequence

import typer

from forebay.cli import bench, demo, doctor, drive, graph, replay, serve
from forebay.cli.contract import run

app = typer.Typer(
    name="forebay",
    help="GPU threads that drive NVMe drives, real or emulated.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("doctor")(doctor.doctor)
app.add_typer(bench.app, name="bench")
app.add_typer(drive.app, name="drive")
app.add_typer(graph.app, name="graph")
app.command("demo")(demo.demo)
app.command("replay")(replay.replay)
app.command("run")(serve.run_program)
drive.app.command("serve")(serve.serve)


@app.callback(invoke_without_command=True)
def _version(*, version: bool = typer.Option(False, "--version", help="Say what was built, and exit.")) -> None:
    if version:
        from forebay import build_info

        built = build_info()
        cuda = "with" if built["cuda"] else "without"
        typer.echo(f"forebay {built['version']} ({built['commit']}, {cuda} CUDA)")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line under the command contract; returns the exit status."""
    return run(app, list(sys.argv[1:] if arguments is None else arguments))
