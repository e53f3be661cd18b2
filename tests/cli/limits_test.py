"""What the process around the program can do to it (limits, closed streams, no folder): one clear line, nothing half
written.

    limits_test.py build/release/moestro
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CONFIG = """{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 256,
 "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "tie_word_embeddings": false, "sliding_window": null, "hidden_act": "silu",
 "router_aux_loss_coef": 0.01, "initializer_range": 0.02}"""
RUN = """[model]
config = "config.json"
[data]
text = ["text.txt"]
seq_len = 32
[train]
steps = 4
global_batch = 4
[checkpoint]
folder = "checkpoints"
every = 1
[output]
metrics = "metrics.jsonl"
"""
# The loader of shared libraries says in its own words that it cannot load them.
LOADER_FAILED = 127


class Limits(unittest.TestCase):
    moestro = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "config.json").write_text(CONFIG)
        (self.folder / "run.toml").write_text(RUN)
        (self.folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)

    def run_limited(self, kind, limit, *arguments):
        return subprocess.run(
            [self.moestro, *arguments], cwd=self.folder, text=True, check=False, timeout=60,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)))

    def can_train(self):
        finished = self.run_limited(resource.RLIMIT_CORE, 0, "train", "run.toml", "--quiet",
                                    "--set", "checkpoint.folder=", "--set", "checkpoint.every=0")
        return finished.returncode == 0

    def expect_one_error(self, finished, what, word, code=1):
        self.assertEqual(finished.returncode, code, f"{what}: {finished.stderr}")
        errors = [line for line in finished.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, f"{what}: {finished.stderr}")
        self.assertIn(word, errors[0], what)
        self.assertTrue(finished.stderr.endswith(errors[0] + "\n"), f"{what}: {finished.stderr}")

    def run_in_memory(self, kib, arguments):
        """Whether so little memory keeps the program from loading, from its end, or from neither."""
        finished = self.run_limited(resource.RLIMIT_AS, kib << 10, *arguments)
        shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)  # or the next run would resume
        if finished.returncode == LOADER_FAILED:
            return "not loaded"
        if finished.returncode == 0:
            return "done"
        self.expect_one_error(finished, f"{arguments} in {kib} KiB", "out of memory")
        return "failed"

    def seek_failures(self, arguments):
        """Bisects between too little to load the program and enough, which differ from machine to machine;
        from the first failure on it closes in on both ends of those."""
        low, middle, high = 0, 8 << 10, None  # KiB
        outcome = self.run_in_memory(middle, arguments)
        while outcome != "failed":
            if outcome == "done":
                high = middle
            else:
                low = middle
            middle = (low + high) // 2 if high else 2 * low
            self.assertGreater(middle - low, 8, f"nothing makes {arguments} fail between {low} and {high} KiB")
            self.assertLess(middle, 16 << 20, f"{arguments}: no end")
            outcome = self.run_in_memory(middle, arguments)
        for end in (low, high or 2 * middle):
            failing = middle
            for _ in range(3):
                near = (failing + end) // 2
                if self.run_in_memory(near, arguments) == "failed":
                    failing = near
                else:
                    end = near

    def test_memory(self):
        """Anything between too little to load the program and enough is one line."""
        (self.folder / "config.json").write_text(
            CONFIG.replace('"hidden_size": 64', '"hidden_size": 512'))
        self.seek_failures(["describe", "tiny"])
        if not self.can_train():
            self.skipTest("this build does not train")
        self.seek_failures(["train", "run.toml", "--quiet", "--set", "train.steps=1", "--set", "train.threads=4"])

    def test_file_size(self):
        """A run whose files may not grow beyond so many bytes."""
        if not self.can_train():
            self.skipTest("this build does not train")
        (self.folder / "metrics.jsonl").unlink()
        for limit in (50, 500, 1000, 20000, 100000, 600000, 900000):
            what = f"files of {limit} bytes"
            finished = self.run_limited(resource.RLIMIT_FSIZE, limit, "train", "run.toml", "--quiet")
            self.expect_one_error(finished, what, "File too large")
            checkpoints = [p.name for p in (self.folder / "checkpoints").iterdir()]
            self.assertEqual(checkpoints, [], what)
            metrics = (self.folder / "metrics.jsonl").read_text()
            self.assertTrue(metrics == "" or metrics.endswith("}\n"), what)
            for line in metrics.splitlines():
                json.loads(line)
        (self.folder / "result").touch()
        finished = subprocess.run(
            f"ulimit -f 0; {self.moestro} describe tiny > result", shell=True, cwd=self.folder,
            check=False, text=True, stderr=subprocess.PIPE)
        self.expect_one_error(finished, "a result of no bytes", "standard output")

    def test_closed_streams(self):
        """No file takes the number of a closed stream, and with it what is shown."""
        finished = subprocess.run(
            f"{self.moestro} describe tiny >&-", shell=True, cwd=self.folder, check=False, text=True,
            stderr=subprocess.PIPE)
        self.expect_one_error(finished, "no output", "standard output")
        if not self.can_train():
            self.skipTest("this build does not train")
        for closed, code in (("2>&-", 0), ("<&- 2>&-", 0), ("<&- >&- 2>&-", 1)):
            (self.folder / "metrics.jsonl").unlink()
            finished = subprocess.run(
                f"{self.moestro} train run.toml --set checkpoint.folder= "
                f"--set checkpoint.every=0 {closed}", shell=True,
                cwd=self.folder, check=False, stdout=subprocess.PIPE)
            self.assertEqual(finished.returncode, code, closed)
            metrics = (self.folder / "metrics.jsonl").read_text()
            self.assertEqual([json.loads(line)["step"] for line in metrics.splitlines()], [1, 2, 3, 4], closed)

    def test_threads(self):
        """A user who may have no further process; root always may."""
        if not self.can_train():
            self.skipTest("this build does not train")
        self.folder.chmod(0o755)

        def restrict():
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            if os.getuid() == 0:
                os.setuid(64999)  # a user without processes
        finished = subprocess.run(
            [self.moestro, "train", "run.toml", "--quiet", "--set", "checkpoint.folder=", "--set",
             "checkpoint.every=0", "--set", "output.metrics="], cwd=self.folder, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=restrict)
        self.expect_one_error(finished, "no thread", "cannot start a thread")

    def test_removed_folder(self):
        (self.folder / "gone").mkdir()
        finished = subprocess.run(
            f"cd gone && rmdir ../gone && exec {self.moestro} describe tiny", shell=True, cwd=self.folder,
            check=False, text=True, stderr=subprocess.PIPE)
        self.expect_one_error(finished, "no folder", "[current folder]", code=2)


if __name__ == "__main__":
    Limits.moestro = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
