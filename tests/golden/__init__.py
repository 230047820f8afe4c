"""Golden tests: what must not change while the package is rewritten, by the number of the
guarantee.

 1  W_rec, W_in, leaks and initial weights, bit for bit       test_weights.py
 2  stopped and resumed ends with the undisturbed bits        test_resume.py
 3  nothing unverified is restored                            test_resume.py
 4  four scoring conventions against lm-eval and minicons     test_scoring.py
 5  losses and weights against PyTorch, update by update      test_updates.py, and tests that ask
 for the fixture `peer` 6  dropout depends on seed, epoch and corpus position
 test_dropout.py, tests/features/test_dropout.py 7  speed: no test. `python benchmarks/families.py`,
 before and after a change, on an idle machine 8  the papers' parameter counts
 test_parameter_counts.py 9  frozen arrays: not in the optimizer, saved once
 test_resume.py
10  an addition is one or two files                           tests/docs/test_extending.py
11  imports go down, no cycle, all typed; the line budget     tests/test_architecture.py
12  the quickstart's figures                                  test_quickstart.py
13  a mistake is one line and status 2; a stop is 75          test_mistakes.py
14  the bytes of token stores                                 test_stores.py
15  an exported run has the same log-probabilities            test_scoring.py

The tests use commands, `esnlm.load`, settings and files of runs and stores only. `inside.py` has
every import of an inner module: change it when a module moves. Figures are in recorded.json;
`python -m tests.golden.record` writes it anew, which is right only if a change of results is wanted
and explained. What PyTorch, lm-eval and minicons compute is recorded in
tests/peers/recorded/golden-*.npz, and computed live where they are installed.
"""
