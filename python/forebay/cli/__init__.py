# SPDX-License-Identifier: Apache-2.0
"""The `forebay` command."""

import sys
from collections.abc import Sequence

import typer

from forebay.cli import (
    bench,
    demo,
    doctor,
    drive,
    export_nbd,
    file_extents,
    graph,
    graph_commands,
    graph_model,
    real_drive,
    replay,
    search,
    search_import,
    search_query,
    serve,
    study,
    transfer,
    transfer_advise,
    transfer_pipeline,
    transfer_report,
    transfer_sweep,
)
from forebay.cli.application import Application
from forebay.cli.contract import run

app = Application(
    name="forebay",
    help="GPU threads that read and write NVMe drives themselves. Drives are emulated, or are files.\n\n"
    "Begin with: forebay doctor, forebay demo. Every COMMAND has a --help of its own.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("doctor")(doctor.doctor)
app.add_typer(bench.app, name="bench")
app.add_typer(drive.app, name="drive")
app.add_typer(graph.app, name="graph")
app.add_typer(search.app, name="search")
app.add_typer(transfer.app, name="transfer")
app.command("demo")(demo.demo)
app.command("replay")(replay.replay)
app.command("study")(study.study)
app.command("run", context_settings={"allow_interspersed_args": False})(serve.run_program)
for _name, _command in graph_commands.COMMANDS.items():
    graph.app.command(_name)(_command)
transfer.app.command("report")(transfer_report.report)
search.app.command("import")(search_import.import_index)
search.app.command("query")(search_query.query)
graph.app.command("model")(graph_model.model)
transfer.app.command("advise")(transfer_advise.advise)
transfer.app.command("pipeline")(transfer_pipeline.pipeline)
transfer.app.command("sweep")(transfer_sweep.sweep)
drive.app.command("extents")(file_extents.extents)
drive.app.command("attach")(real_drive.attach)
drive.app.command("detach")(real_drive.detach)
drive.app.command("serve")(serve.serve)
drive.app.command("export-nbd")(export_nbd.export_nbd)


@app.callback(invoke_without_command=True)
def _version(
    *, version: bool = typer.Option(False, "--version", help="Print the version and how it was built, and exit.")
) -> None:
    if version:
        from forebay import build_info

        built = build_info()
        cuda = "with" if built["cuda"] else "without"
        typer.echo(f"forebay {built['version']} ({built['commit']}, {cuda} CUDA)")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line under the command contract; returns the exit status."""
    return run(app, list(sys.argv[1:] if arguments is None else arguments))
