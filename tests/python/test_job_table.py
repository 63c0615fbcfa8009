# SPDX-License-Identifier: Apache-2.0
"""The line below the table of a job."""

import pytest
from forebay.cli.job_table import conditions

JOB = {"usr_cpu": 50.0, "sys_cpu": 25.0}


def ours(**differing):
    return {"gpu_threads": 2, "device": "cpu", "seconds": 1.0, **differing}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([{"io": "mmap", "direct": False}], "2 threads on cpu, the file mapped (io=mmap); 1.00 s"),
        ([{"io": "uring", "direct": True}], "2 threads on cpu, the file by io_uring, O_DIRECT; 1.00 s"),
        (
            [{"io": "uring", "direct": False}, {"io": "mmap", "direct": False}, {"io": "mmap", "direct": False}],
            "the file by io_uring, through the page cache and the file mapped (io=mmap); 1.00 s",
        ),
        ([], "2 threads on cpu; 1.00 s"),
    ],
)
def test_a_job_on_files_says_how_they_were_reached(files, said):
    drives = [{"uri": "emulated:"}, *({"file": file} for file in files)]
    assert said in conditions(JOB, ours(drives=drives))


def test_a_job_of_an_engine_has_no_drives():
    assert "cpu, data in the memory of cuda:0;" in conditions(JOB, ours(file={}, device="cuda:0"))
