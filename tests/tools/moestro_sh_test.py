"""What moestro.sh does with what an earlier call, here or elsewhere, left behind; without installing or building."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "moestro.sh"
# Stand-ins for what it calls: they say so, and leave the files that the script looks at.
PROGRAMS = {
    "dpkg-query": "echo installed",
    "python3": """echo "python3 $*" >> calls
mkdir -p .venv/bin && printf '%s\\n' '#!/bin/sh' 'echo "pip $*" >> calls' > .venv/bin/python
chmod +x .venv/bin/python""",
    "cmake": """echo "cmake $*" >> calls
[ "$1" = --preset ] || exit 0
mkdir -p build/$2 && touch build/$2/build.ninja
echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" > build/$2/CMakeCache.txt""",
}
TORCH_VERSION = re.search("TORCH_VERSION=(.*)", SCRIPT.read_text())[1]
TORCH = f".venv/lib/python3.11/site-packages/torch-{TORCH_VERSION}+cpu.dist-info/INSTALLER"
CONFIGURED = "cmake --preset release"


class MoestroSh(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base = Path(folder.name).resolve()
        for name, text in PROGRAMS.items():
            self.write(self.base / "bin" / name, f"#!/bin/sh\n{text}\n").chmod(0o755)
        self.clone = self.base / "clone"
        self.write(self.clone / "CMakePresets.json", "{}")
        self.write(self.clone / TORCH, "pip")
        shutil.copy(SCRIPT, self.clone)

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def build(self, clone):
        """What is said, and the calls of the stand-ins."""
        calls = clone / "calls"
        calls.write_text("")
        finished = subprocess.run(
            [clone / "moestro.sh", "build"], text=True, check=True, stderr=subprocess.PIPE,
            env={**os.environ, "PATH": f"{self.base / 'bin'}:{os.environ['PATH']}"})
        return finished.stderr, calls.read_text().splitlines()

    def test_configures_once(self):
        self.assertIn(CONFIGURED, self.build(self.clone)[1])
        self.assertNotIn(CONFIGURED, self.build(self.clone)[1])
        link = self.base / "link"
        link.symlink_to(self.clone)
        self.assertNotIn(CONFIGURED, self.build(link)[1])

    def test_keeps_what_was_configured_behind_a_link(self):
        self.build(self.clone)
        link = self.base / "link"
        link.symlink_to(self.clone)
        self.write(self.clone / "build/release/CMakeCache.txt", f"CMAKE_HOME_DIRECTORY:INTERNAL={link}\n")
        self.assertNotIn(CONFIGURED, self.build(self.clone)[1])

    def test_builds_a_copy_or_a_moved_clone_anew(self):
        self.build(self.clone)
        copy, moved = self.base / "the copy", self.base / "moved"
        shutil.copytree(self.clone, copy)
        for folder in (copy, self.clone.rename(moved)):
            self.write(folder / "build/release/old.o", "")
            said, calls = self.build(folder)
            self.assertIn(f"build/release was made for {self.clone}, this is {folder}: building anew\n", said)
            self.assertIn(CONFIGURED, calls)
            self.assertFalse((folder / "build/release/old.o").exists())

    def test_makes_half_an_environment_anew(self):
        """Ctrl-C while it is made leaves no pip; while pip unpacks, no INSTALLER."""
        (self.clone / TORCH).unlink()
        self.write(self.clone / ".venv/bin/python", "#!/bin/sh\nexit 1\n").chmod(0o755)
        calls = self.build(self.clone)[1]
        self.assertEqual(calls[0], "python3 -m venv .venv")
        self.assertRegex(calls[1], "^pip -m pip install .*torch==")

    def test_adds_to_an_environment_that_works(self):
        shutil.rmtree((self.clone / TORCH).parent)
        self.write(self.clone / ".venv/bin/python", "#!/bin/sh\n").chmod(0o755)
        mine = self.write(self.clone / ".venv/mine", "")
        self.assertNotIn("python3 -m venv .venv", self.build(self.clone)[1])
        self.assertTrue(mine.exists())

    def test_makes_one_with_half_of_torch_anew(self):
        (self.clone / TORCH).unlink()
        self.write(self.clone / ".venv/bin/python", "#!/bin/sh\n").chmod(0o755)
        self.assertIn("python3 -m venv .venv", self.build(self.clone)[1])

    def test_empties_no_folder_that_the_environment_is_a_link_to(self):
        shutil.rmtree(self.clone / ".venv")
        other = self.write(self.base / "other/mine", "")
        (self.clone / ".venv").symlink_to(other.parent)
        self.assertEqual(self.build(self.clone)[1][0], "python3 -m venv .venv")
        self.assertTrue(other.exists())

    def test_leaves_a_whole_environment(self):
        self.assertFalse([call for call in self.build(self.clone)[1] if not call.startswith("cmake")])


if __name__ == "__main__":
    unittest.main()
