"""The checkers find what they are for, and nothing in a tree that is right."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
HEADER = "#pragma once\n// What it is.\n"


def run(tool, *arguments, environment=None):
    finished = subprocess.run([sys.executable, "-B", TOOLS / tool, *arguments], text=True, check=False,
                              stdout=subprocess.PIPE, env={**os.environ, **(environment or {})})
    return finished.returncode, finished.stdout


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)
        self.write("moestro/core/CMakeLists.txt", "moestro_library(core SOURCES a.cpp)")
        self.write("moestro/model/CMakeLists.txt", "moestro_library(model\n  SOURCES b.cpp\n  DEPS core)")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class CheckIncludes(Tree):
    def expect(self, text):
        code, output = run("check_includes.py", self.root)
        self.assertIn(text, output)
        self.assertEqual(code, 1)

    def test_accepts_a_right_tree(self):
        self.write("moestro/model/b.cpp", '#include "moestro/core/a.h"\n#include <vector>\n')
        self.assertEqual(run("check_includes.py", self.root), (0, ""))

    def test_finds_an_include_beside_the_dependencies(self):
        self.write("moestro/core/a.cpp", '\n#include "moestro/model/b.h"\n')
        self.expect("moestro/core/a.cpp:2: core includes moestro/model/b.h")

    def test_finds_a_dependency_upwards(self):
        self.write("moestro/core/CMakeLists.txt", "moestro_library(core SOURCES a.cpp DEPS model)")
        self.expect("moestro/core: must not depend on model")

    def test_finds_a_forbidden_dependency(self):
        self.write("moestro/runtime/CMakeLists.txt", "moestro_library(runtime SOURCES a.cpp DEPS cost)")
        self.expect("moestro/runtime: must not depend on cost")

    def test_reads_every_call_of_a_library(self):
        self.write("moestro/runtime/CMakeLists.txt",
                   "moestro_library(runtime DEPS core)\nmoestro_library(runtime DEPS core model) # DEPS sim")
        self.write("moestro/runtime/a.cpp", '#include "moestro/model/b.h"\n')
        self.assertEqual(run("check_includes.py", self.root)[0], 0)

    def test_finds_heavy_headers_away_from_home(self):
        self.write("moestro/core/a.h", "#include <nlohmann/json.hpp>\n")
        self.expect("moestro/core/a.h:1: nlohmann/json.hpp may be included only in")
        self.write("moestro/core/a.h", "#include <ATen/ATen.h>\n")
        self.expect("moestro/core/a.h:1: ATen/ATen.h")

    def test_finds_internal_headers_of_others(self):
        self.write("moestro/model/b.cpp", '#include "moestro/core/internal/x.h"\n')
        self.expect("is internal to core")

    def test_finds_relative_includes(self):
        self.write("moestro/core/a.cpp", '#include "a.h"\n')
        self.expect('write the full path, "moestro/core/a.h"')


class CheckStyle(Tree):
    def expect(self, text):
        code, output = run("check_style.py", self.root)
        self.assertIn(text, output)
        self.assertEqual(code, 1)

    def test_accepts_a_right_tree(self):
        self.write("moestro/core/a.h", HEADER + "/// Does it.\nint a(int x);\nint b(int x);\n")
        self.assertEqual(run("check_style.py", self.root), (0, ""))

    def test_finds_long_files(self):
        self.write("moestro/core/a.cpp", "// x\n" * 700)
        self.expect("moestro/core/a.cpp: 701 lines")

    def test_finds_long_functions(self):
        self.write("moestro/core/a.cpp", "void a(int x) {\n" + "  x += 1;\n" * 70 + "}\n")
        self.expect("moestro/core/a.cpp:1: function of 72 lines")

    def test_finds_headers_without_guard(self):
        self.write("moestro/core/a.h", "// What it is.\n")
        self.expect("a.h:1: a header starts with #pragma once")

    def test_finds_undocumented_functions(self):
        self.write("moestro/core/a.h", HEADER + "\nnamespace m {\n\nint a(int x);\n\n}  // namespace m\n")
        self.expect("a.h:6: public function without a /// comment")

    def test_finds_tabs_spaces_and_words(self):
        self.write("moestro/core/a.cpp", "\tint x;\nint y; \nusing namespace std;\n// TO" "DO later\n")
        for number, problem in enumerate(("tab", "trailing space", "using namespace", "TODO"), 1):
            self.expect(f"moestro/core/a.cpp:{number}: {problem}")

    def test_accepts_suppressions_with_a_reason_only(self):
        self.write("moestro/core/a.cpp", "delete x;  // NOLINT: owned by the list\n")
        self.assertEqual(run("check_style.py", self.root)[0], 0)
        self.write("moestro/core/a.cpp", "delete x;  // NOLINT\n")
        self.expect("new or delete")


class RunTranscript(Tree):
    def setUp(self):
        super().setUp()
        self.program = self.write("bin/moestro", "#!/bin/sh\necho out $1\necho err >&2\nexit ${2:-0}\n")
        self.program.chmod(0o755)

    def transcript(self, text, **environment):
        self.file = self.write("t.txt", text)
        return run("run_transcript.py", "--moestro", self.program, self.file, environment=environment)

    def test_accepts_equal_output(self):
        self.assertEqual(self.transcript("Text.\n\n$ moestro a\nout a\nerr\n\n$ moestro b 2\nout b\nerr\n[exit 2]\n")[0], 0)

    def test_finds_other_output_and_exit_codes(self):
        self.assertEqual(self.transcript("$ moestro a\nout b\nerr\n")[0], 1)
        self.assertEqual(self.transcript("$ moestro a 3\nout a\nerr\n")[0], 1)
        self.assertEqual(self.transcript("$ moestro a\nout a\n")[0], 1)

    def test_lets_wildcards_stand_for_anything(self):
        self.assertEqual(self.transcript("$ moestro abc\nout a...\n...\n")[0], 0)
        self.assertEqual(self.transcript("$ moestro abc\nout x...\n...\n")[0], 1)

    def test_runs_continued_commands(self):
        self.assertEqual(self.transcript("$ cat <<'END'\n> one\n> END\none\n")[0], 0)

    def test_rewrites_what_differs(self):
        code, _ = self.transcript("Text.\n\n$ moestro a\nold\n\n$ moestro b\nout ...\nerr\n", MOESTRO_UPDATE_GOLDEN="1")
        self.assertEqual(code, 0)
        self.assertEqual(self.file.read_text(), "Text.\n\n$ moestro a\nout a\nerr\n\n$ moestro b\nout ...\nerr\n")

    def test_rejects_a_file_without_commands(self):
        self.assertEqual(self.transcript("moestro a\n")[0], 1)


if __name__ == "__main__":
    unittest.main()
