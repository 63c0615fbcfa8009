# SPDX-License-Identifier: Apache-2.0
"""`forebay search import`: takes over an index that another program built."""

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.contract import AllowDestroyOption, JsonOption, check_json_target, terminal, write_json
from forebay.search.diskann import import_diskann
from forebay.storage import Storage


def import_command(
    prefix: Annotated[
        Path, typer.Argument(metavar="PREFIX", help="How the names of DiskANN's files begin, such as folder/ann.")
    ],
    drive: Annotated[
        list[str], typer.Option("--drive", metavar="URI", help="Where the index goes. Give it again for more drives.")
    ],
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype",
            metavar="float32|int8|uint8",
            help="The type of a vector's components, which the files do not tell.",
        ),
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The name of the index.")] = "index",
    replace: Annotated[bool, typer.Option("--replace", help="Take the place of an index of that name.")] = False,
    allow_destroy: AllowDestroyOption = False,
    json_target: JsonOption = None,
) -> None:
    """Take over a disk index of DiskANN: its vectors, its graph and its codes."""
    check_json_target(json_target)
    with (
        Storage(*drive, device="cpu", allow_destroy=allow_destroy) as storage,
        import_diskann(storage, prefix, name, dtype=dtype, replace=replace) as index,
    ):
        document = index.info()
    write_json(json_target, document)
    terminal(json_target).print(
        f"{name}: {document['count']} vectors of {document['dimension']} x {document['dtype']}, "
        f"records of {document['record_bytes']} bytes, codes of {document['chunks']}",
        highlight=False,
        soft_wrap=True,
    )
