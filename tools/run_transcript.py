#!/usr/bin/env python3
"""Runs the commands of transcripts and compares what they print.

    run_transcript.py --moestro build/release/moestro tests/transcripts/*.txt

A transcript holds text, then commands after "$ " (continued by lines after "> ", which end in the
command's own lines, e.g. a here-document) with the output that is expected, standard error
included, and "[exit N]" where the exit code is not 0:

    $ moestro train absent.toml
    error: [absent.toml] expected a file, but there is none; check the path
    [exit 2]

$EXAMPLES is the folder examples/ of the source tree; copy what a command writes beside. "..." in a line stands for any text, a line that is only "..." for any lines. The commands of a file
share one temporary folder, which is the current folder. MOESTRO_UPDATE_GOLDEN=1 rewrites what
differs.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TIMEOUT_SECONDS = 60


def parse(text):
    """Returns the lines before the first command, and [(command lines, expected lines), ...]."""
    preamble, commands = [], []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(([line[2:]], []))
        elif line.startswith("> ") and commands and not commands[-1][1]:
            commands[-1][0].append(line[2:])
        elif commands:
            commands[-1][1].append(line)
        else:
            preamble.append(line)
    return preamble, commands


def execute(command_lines, moestro, folder):
    """Runs a command by the shell; `moestro` in it is the given program."""
    environment = {
        "PATH": f"{moestro.parent}:/usr/bin:/bin",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "EXAMPLES": str(Path(__file__).resolve().parents[1] / "examples"),
        # Sanitizer builds write their findings into the output, which then differs.
        **{name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")},
    }
    finished = subprocess.run(
        ["sh", "-c", "\n".join(command_lines)], cwd=folder, env=environment, timeout=TIMEOUT_SECONDS,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    lines = finished.stdout.decode("utf-8", errors="replace").splitlines()
    if finished.returncode != 0:
        lines.append(f"[exit {finished.returncode}]")
    return lines


def matches(expected, actual):
    """Whether the lines agree, where "..." stands for anything."""
    pattern = ""
    for line in expected:
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.split("...")) + r"\n"
    return re.fullmatch(pattern, "".join(line + "\n" for line in actual)) is not None


def without_blank_end(lines):
    """Blank lines before the next command belong to the transcript, not to the output."""
    end = len(lines)
    while end > 0 and not lines[end - 1]:
        end -= 1
    return lines[:end], lines[end:]


def run_file(path, moestro, update):
    preamble, commands = parse(path.read_text())
    written, failures = list(preamble), 0
    with tempfile.TemporaryDirectory() as folder:
        for command, block in commands:
            expected, gap = without_blank_end(block)
            actual, _ = without_blank_end(execute(command, moestro, Path(folder)))
            agree = matches(expected, actual)
            written += ["$ " + command[0]] + ["> " + line for line in command[1:]]
            written += (expected if agree else actual) + gap
            if not agree and not update:
                failures += 1
                print(f"{path}: $ {command[0]}")
                for line in difflib.unified_diff(expected, actual, "expected", "got", lineterm=""):
                    print("  " + line)
    if not commands:
        print(f"{path}: no command; a command starts with \"$ \"")
        failures += 1
    if update and failures == 0:
        path.write_text("\n".join(written) + "\n")
    return failures


def main():
    parser = argparse.ArgumentParser(description="compares the output of commands with transcripts")
    parser.add_argument("--moestro", type=Path, required=True, help="the program")
    parser.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    update = os.environ.get("MOESTRO_UPDATE_GOLDEN") == "1"
    failures = sum(run_file(path, arguments.moestro.resolve(), update) for path in arguments.files)
    print(f"{len(arguments.files)} transcripts, {failures} commands differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
