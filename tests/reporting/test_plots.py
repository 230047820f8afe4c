"""Figures of one style, and what happens without matplotlib."""

from esnlm.reporting import plots


def test_what_stands_between_two_dollars_is_no_mathematics(tmp_path, rendered):
    figure, axes = plots.figure(3, 2)
    axes[0, 0].plot([1, 2], [10, 1000], label="$a_b_c$")
    axes[0, 0].set(title="cost$5_and_$6", yscale="log")
    axes[0, 0].legend()
    figure.suptitle("a$b_$")
    plots.save_png(figure, tmp_path / "a.png")
    powers = [label.get_parse_math() for label in axes[0, 0].yaxis.get_ticklabels()]
    assert powers and all(powers), "of a logarithmic axis"
