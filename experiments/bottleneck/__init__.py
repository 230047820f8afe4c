"""The experiments of Utsunomiya 2025 on networks with bottlenecks: alignment, the coordinate check,
training curves.

python -m experiments.bottleneck experiments/bottleneck/studies/alignment_fig3_2.yaml --small
"""
