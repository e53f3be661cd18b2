"""The comparison with transformers ends where any program, round or step strays, or is no number."""

import math
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run  # noqa: E402

PROGRAMS = ("moestro", "moestro recompute", *run.PEERS)


def results(rounds=2):
    return {name: [{"losses": [9.0, 8.0, 7.0]} for _ in range(rounds)] for name in PROGRAMS}


class CheckLosses(unittest.TestCase):
    def test_returns_the_worst_difference_of_ours(self):
        some = results()
        some["moestro recompute"][1]["losses"][2] += 5e-4
        some["sdpa, grouped_mm"][1]["losses"][2] += 9e-4
        self.assertAlmostEqual(run.check_losses("f32", some), 5e-4)

    def test_finds_any_program_round_and_step(self):
        for name in PROGRAMS:
            for number in range(2):
                for step in range(3):
                    for difference in (0.1, -0.1, math.nan, math.inf):
                        some = results()
                        some[name][number]["losses"][step] += difference
                        with self.assertRaises(SystemExit, msg=(name, number, step, difference)):
                            run.check_losses("bf16", some)

    def test_finds_missing_steps(self):
        for name in PROGRAMS:
            some = results()
            some[name][1]["losses"].pop()
            with self.assertRaises(SystemExit, msg=name):
                run.check_losses("f32", some)
        with self.assertRaises(SystemExit):
            run.check_losses("f32", {name: [{"losses": []}] for name in PROGRAMS})


class Run(unittest.TestCase):
    def run_program(self, output, code=0):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            program.write_text(f"#!/bin/sh\necho text\necho '{output}'\nexit {code}\n")
            program.chmod(0o755)
            return run.run([program], 1)

    def test_reads_the_last_line(self):
        self.assertEqual(self.run_program('{"losses": [1.5]}'), {"losses": [1.5]})

    def test_refuses_what_is_no_number(self):
        for loss in ("null", "NaN", "Infinity"):  # as nlohmann and Python write them
            with self.assertRaises(SystemExit, msg=loss):
                self.run_program(f'{{"losses": [1.5, {loss}]}}')

    def test_ends_where_a_program_fails(self):
        with self.assertRaises(SystemExit):
            self.run_program('{"losses": [1.5]}', code=1)


if __name__ == "__main__":
    unittest.main()
