#!/usr/bin/env python3
"""What tools/cuda_architectures.sh builds for: the GPUs of a machine, those named, all.

usage: cuda_architectures_test.py SOURCE_FOLDER
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ALL = "80-real;86-real;89-real;90a-real;100-real;120-real;90-virtual"


def chosen(capabilities, *arguments):
    """On a machine with GPUs of these compute capabilities; None: without a driver."""
    with tempfile.TemporaryDirectory() as folder:
        smi = pathlib.Path(folder) / "nvidia-smi"
        lines = "exit 9" if capabilities is None else "\n".join(f"echo {one}" for one in capabilities)
        smi.write_text(f"#!/bin/sh\n{lines}\n")
        smi.chmod(0o755)
        script = pathlib.Path(sys.argv[1]) / "tools" / "cuda_architectures.sh"
        path = folder + os.pathsep + os.environ["PATH"]
        run = subprocess.run([script, *arguments], check=True, capture_output=True, text=True,
                             env={**os.environ, "PATH": path})
        return run.stdout.strip(), run.stderr


def main():
    cases = [(["9.0"], [], "90a-real"), (["8.6", "8.6", "12.0"], [], "120-real;86-real"),
             (["8.9"], [""], "89-real"), (None, [], ALL), (["[N/A]"], [], ALL), (["8.6"], ["all"], ALL),
             (None, ["80-virtual"], "80-virtual"), (["9.0"], ["80-real;86-real"], "80-real;86-real")]
    for capabilities, arguments, expected in cases:
        list_, said = chosen(capabilities, *arguments)
        # What was not asked for is said.
        if sorted(list_.split(";")) != sorted(expected.split(";")) or bool(said) != (not any(arguments)):
            sys.exit(f"{capabilities} {arguments}: {list_}; {said}")
    print(f"{len(cases)} machines and wishes")


if __name__ == "__main__":
    main()
