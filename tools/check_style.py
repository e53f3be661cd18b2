#!/usr/bin/env python3
"""Checks what clang-format and the compiler do not: sizes, headers, words, shown errors.

Prints one line per violation; exits 1 if there is any.

    check_style.py [root of the tree]
"""

import re
import sys
from pathlib import Path

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_COLUMNS = 100

FOLDERS = ("moestro", "tests", "bench", "tools", "examples", "cmake", "docs")
SOURCES = (".h", ".cpp")
TEXTS = SOURCES + (".py", ".sh", ".txt", ".cmake", ".md", ".toml")
# Tables and golden output are as wide as they are.
WIDE = re.compile(r"(^|/)(golden|transcripts|models)/|\.md$")

FORBIDDEN = re.compile(r"std::endl|(?<!operator )\bnew [A-Za-z_:]+[({\[]|(?<!operator )(?<!= )\bdelete\b")

# A top-level line that opens a body: "Type name(...) ... {". One level of namespace is not indented.
OPENING = re.compile(r"^(?!namespace|extern \"C\" \{|struct|class|enum|union|\s|#|/|\}).*\{$")
# A function of a header that needs a comment above: not a member, not an operator.
DECLARATION = re.compile(
    r"^(?:\[\[nodiscard\]\] |inline |constexpr |const |void |bool |int |std::|[A-Z]\w* |[a-z_]+::)"
    r"(?!.*\boperator\b)[^=]*\(")
# Rows of a table that is written as a switch.
TABLE_ROW = re.compile(r"^\s*(case [\w:]+:( return .*;)?|return \"[^\"]*\";)$")


def strip_strings(line):
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', line)


def check_lines(relative, lines):
    is_source = relative.endswith(SOURCES)
    for number, line in enumerate(lines, 1):
        place = f"{relative}:{number}"
        if re.search(r"NOLINT.*: \w", line):
            continue  # a suppression with its reason
        if "\t" in line:
            yield f"{place}: tab; use spaces"
        if line != line.rstrip():
            yield f"{place}: trailing space"
        # The formatter cannot break text in quotes.
        if is_source and len(line) > MAX_COLUMNS and "http" not in line and '"' not in line:
            yield f"{place}: {len(line)} columns, at most {MAX_COLUMNS}"
        if is_source and re.match(r"\s*using namespace\b", line):
            yield f"{place}: using namespace"
        if re.search(r"\bTODO\b(?!\(#\d+\))", line) and not relative.startswith(("tools/", "tests/tools/")):
            yield f"{place}: TODO without an open issue; write TODO(#12)"
        if is_source and FORBIDDEN.search(strip_strings(line.split("//")[0])):
            yield f"{place}: std::endl, new or delete"


def function_ends(lines):
    """(first line, last line) of bodies that start at the left margin; formatted code only."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and OPENING.match(line) and "(" in line + (lines[number - 2] if number > 1 else ""):
            start = number
        elif start is not None and line.startswith("}"):
            yield start, number
            start = None


def check_functions(relative, lines):
    for start, end in function_ends(lines):
        # A test case may be a long table of claims.
        size = sum(not TABLE_ROW.match(line) for line in lines[start - 1:end])
        if size > MAX_FUNCTION_LINES and not lines[start - 1].startswith("TEST"):
            yield f"{relative}:{start}: function of {size} lines, at most {MAX_FUNCTION_LINES}"


def check_header(relative, lines):
    if not lines or lines[0] != "#pragma once":
        yield f"{relative}:1: a header starts with #pragma once"
    if len(lines) > 1 and not lines[1].startswith("//"):
        yield f"{relative}:2: a header says in its first lines what it defines"
    is_private = "/internal/" in relative or relative.startswith("tests/")
    previous = ""
    depth = 0
    internal = False
    for number, line in enumerate(lines, 1):
        internal = internal or re.match(r"namespace internal|namespace \{", line) is not None
        if re.match(r"\}  // namespace internal", line):
            internal = False
        if depth == 0 and not internal and not is_private and DECLARATION.match(line):
            follows = previous.startswith(("///", "template", "requires", "}")) or \
                previous.endswith((",", "(", ";"))  # one comment may serve several lines
            if not follows:
                yield f"{relative}:{number}: public function without a /// comment"
        code = strip_strings(line.split("//")[0])
        if not re.match(r"namespace|extern \"C\"|\}  // namespace", line):
            depth += code.count("{") - code.count("}")
        previous = line.strip()


def check_shown_errors(root):
    """An error that a page shows is one that a transcript proves, to the letter."""
    proven = {line for path in (root / "tests/transcripts").rglob("*.txt")
              for line in path.read_text().split("\n")}
    for path in sorted((root / "docs").rglob("*.md")):
        for number, line in enumerate(path.read_text().split("\n"), 1):
            is_shown = line.startswith("    error: ") and "[where]" not in line
            if is_shown and line.strip() not in proven:
                yield f"{path.relative_to(root).as_posix()}:{number}: no transcript prints this error"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    problems = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root).as_posix()
            if path.suffix not in TEXTS or not path.is_file() or WIDE.search(relative):
                continue
            lines = path.read_text().split("\n")
            if len(lines) > MAX_FILE_LINES:
                problems.append(f"{relative}: {len(lines)} lines, at most {MAX_FILE_LINES}")
            problems += check_lines(relative, lines)
            if path.suffix in SOURCES:
                problems += check_functions(relative, lines)
            if path.suffix == ".h":
                problems += check_header(relative, lines)
    problems += check_shown_errors(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
