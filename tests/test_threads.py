"""One loaded run, one reservoir and one readout serve several threads at once, with the numbers
that one thread gets."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import esnlm

THREADS, CALLS = 8, 20


def hammer(ask, given, compare=np.testing.assert_array_equal):
    """Asks for each of `given` in turn from all threads, and compares with what one thread was told
    before."""
    expected = [ask(each) for each in given]

    def work(first):
        return [(i % len(given), ask(given[i % len(given)])) for i in range(first, first + CALLS)]

    with ThreadPoolExecutor(THREADS) as pool:
        for found in pool.map(work, range(THREADS)):
            for i, value in found:
                compare(value, expected[i])


def test_a_run_serves_threads(trained):
    run = esnlm.load(trained("esn"))
    sentences = [["The cats sleep."], ["A dog"], ["The dog that the cats like sleeps ."] * 3]
    hammer(lambda given: np.concatenate(run.states(given)), sentences)
    hammer(run.log_probs, sentences)
    hammer(lambda given: [row["surprisal_bits"] for row in run.surprisal(given)], sentences)


def test_a_reservoir_and_a_readout_serve_threads():
    tokens = esnlm.Reservoir.draw(40, vocabulary=20, seed=1)
    hammer(tokens.states, [np.arange(5), np.arange(12), np.arange(20)[::-1]])
    numbers = esnlm.Reservoir.draw(40, inputs=1, seed=1)
    series = np.sin(np.arange(60.0))[:, None]
    hammer(numbers.states, [series[:20], series[:50], series])
    x = numbers.states(series)
    readout = esnlm.Readout("ridge", regularizations=(1e-3,)).fit(x, series)
    hammer(readout.predict, [x[:10], x[:30], x])
