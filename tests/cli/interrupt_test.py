"""What a signal does to a training run, wherever it comes: the run ends soon, well, and with its last step saved.

    interrupt_test.py build/release/moestro
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

CONFIG = """{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 256,
 "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
 "num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "tie_word_embeddings": false, "sliding_window": null, "hidden_act": "silu",
 "router_aux_loss_coef": 0.01, "initializer_range": 0.02}"""
# Each would take many minutes, but for the signal.
MANY_STEPS = "train.steps=1000000"
LONG_VALIDATION = ["--set", "data.validation_fraction=0.99", "--set", "train.validation_batches=1000000"]
LONG_SAMPLE = ["--set", "output.sample_prompt=the", "--set", "output.sample_tokens=1000000"]
RUN = """[model]
config = "config.json"
[data]
text = ["text.txt"]
seq_len = 32
[train]
steps = 2
global_batch = 4
threads = 1
[checkpoint]
folder = "checkpoints"
[output]
metrics = "metrics.jsonl"
"""


class Interrupt(unittest.TestCase):
    moestro = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "config.json").write_text(CONFIG)
        (self.folder / "run.toml").write_text(RUN)
        (self.folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200_000)

    def interrupt(self, after, *arguments, number=signal.SIGINT, seconds=0):
        """Sends the signal once the run has shown a line that begins so, and these seconds have
        passed; returns its summary."""
        with subprocess.Popen(
                [self.moestro, "train", "run.toml", "--json", *arguments], cwd=self.folder, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as run:
            shown = []
            while not shown or not shown[-1].startswith(after):
                shown.append(run.stderr.readline())
                if not shown[-1]:
                    self.fail(f"ended too early: {shown}")
            time.sleep(seconds)
            run.send_signal(number)
            summary, rest = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0, rest)
        self.assertIn("interrupted: ", rest)
        return json.loads(summary)

    def saved(self):
        return sorted(path.name for path in (self.folder / "checkpoints").glob("step-*"))

    def test_in_a_step(self):
        summary = self.interrupt("step ", "--set", MANY_STEPS, number=signal.SIGTERM)
        self.assertTrue(summary["interrupted"])
        self.assertEqual(self.saved(), [f"step-{summary['steps']:06}"])
        self.assertEqual(len((self.folder / "metrics.jsonl").read_text().splitlines()), summary["steps"])

    def test_twice_within_a_second(self):
        """However near its end the run is when the second comes."""
        with subprocess.Popen(
                [self.moestro, "train", "run.toml", "--json", "--set", MANY_STEPS], cwd=self.folder, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as run:
            while not run.stderr.readline().startswith("step "):
                self.assertIsNone(run.poll())
            first = time.monotonic()
            while run.poll() is None and time.monotonic() < first + 0.8:
                run.send_signal(signal.SIGINT)
                time.sleep(0.001)
            summary, rest = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 0, rest)
        self.assertEqual(self.saved(), [f"step-{json.loads(summary)['steps']:06}"])

    def test_nobody_reads_the_progress(self):
        """The run goes on to its end."""
        with subprocess.Popen(
                [self.moestro, "train", "run.toml", "--json", "--set", "train.steps=200"], cwd=self.folder,
                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            while not run.stderr.readline().startswith("step "):
                self.assertIsNone(run.poll())
            run.stderr.close()
            summary = json.loads(run.stdout.read())
            self.assertEqual(run.wait(timeout=60), 0)
        self.assertFalse(summary["interrupted"])
        self.assertEqual(self.saved(), ["step-000200"])

    def test_in_the_last_validation(self):
        """Nothing is shown of the last step before it, but that takes milliseconds."""
        summary = self.interrupt("machine", *LONG_VALIDATION, "--set", "train.steps=1", seconds=1)
        self.assertTrue(summary["interrupted"])
        self.assertEqual(summary["steps"], 1)
        self.assertIsNone(summary["validation_loss"])
        self.assertEqual(self.saved(), ["step-000001"])

    def test_in_the_sample(self):
        summary = self.interrupt("saved ", *LONG_SAMPLE)
        self.assertTrue(summary["interrupted"])
        self.assertEqual(summary["steps"], 2)
        self.assertIsNotNone(summary["validation_loss"])
        self.assertEqual(self.saved(), ["step-000002"])
        metrics = (self.folder / "metrics.jsonl").read_text()
        again = self.interrupt("warning: no step is left", *LONG_SAMPLE)
        self.assertEqual(again["steps"], 0)
        self.assertEqual((self.folder / "metrics.jsonl").read_text(), metrics)


if __name__ == "__main__":
    Interrupt.moestro = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()
