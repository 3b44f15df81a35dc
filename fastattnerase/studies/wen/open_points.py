"""What Wen, Subbalakshmi and Yang (2022) leave open, how it is read here, and the option for it."""

from __future__ import annotations

POINTS: tuple[tuple[str, str, str], ...] = (
    (
        "Ranks measured, k: stated twice, differently",
        "The smaller of the 10th percentile of the lengths and the largest k at which 80 % of the "
        "instances have a k-th weight above 1e-5; shorter instances are left out.",
        "--ranks, --max-ranks",
    ),
    (
        "Clusters, N: “minimal value” in 50 … 200 with two samples each",
        "The largest of 200, 150, 100, 75, 50 with two samples each in all ranks; else 50, at most "
        "a fifth of the samples. No candidate passes in most models: table clusters.csv.",
        "--clusters",
    ),
    ("Codebook per rank or shared", "Per rank.", "--codebook"),
    (
        "Estimator, unit, bias",
        "Plug-in, nats, one N and the same instances for all ranks; Miller-Madow and a control "
        "with outputs shuffled beside it. A tau that is not different from that is marked. "
        "What tau is where attention learned nothing: weights permuted within each instance, equal "
        "weights, untrained attention, each with the outputs recomputed.",
        "--shuffles, --permutations",
    ),
    (
        "Pair weights of weighted tau",
        "The product of the two mean weights; the sum is in the tables, too.",
        "measurements.csv",
    ),
    (
        "Which program computes weighted tau",
        "Summed pair by pair, as Shieh defines it; the defaults of SciPy's function differ.",
        "–",
    ),
    (
        "Fix Attn: constant, or frozen",
        "Four readings: uniform, the trained model's weights, random weights (drawn uniformly from "
        "the simplex), random parameters.",
        "Table 2",
    ),
    (
        "Fix Rep: which encoder, which decoder",
        "The trained encoder with a new decoder, or with its own kept; a random encoder.",
        "Table 2",
    ),
    ("Gumbel noise at evaluation", "Both, and the noise alone on equal scores.", "Table 5"),
    (
        "Gumbel: soft or straight through, noise fresh or kept",
        "Soft, fresh in every step.",
        "--gumbel-hard, --gumbel-noise, --temperature",
    ),
    (
        "Deep attention: depth, width, biases",
        "Two layers after the first, as wide as additive attention; biases but in the last.",
        "--attention-depth, --attention-size",
    ),
    (
        "CNN: 128 channels a width or in all",
        "32 for each of the five widths, as Jain & Wallace have for their four.",
        "--channels",
    ),
    ("Decoder of tasks with a query", "Not part of these studies: no query.", "–"),
    (
        "Training where the paper is silent",
        "Jain & Wallace's code: AMSGrad, 8 epochs, the best dev AUC but never the first epoch, "
        "class weights, no weight decay on attention.",
        "--epochs, --selection, --class-weights, --attention-weight-decay",
    ),
    (
        "Output clusters",
        "Five, of the logits.",
        "--output-clusters, --output-space",
    ),
    (
        "“10 runs”: seeds or repeats",
        "Seeds; training repeats exactly, k-means runs under several seeds: table repeats.csv.",
        "--seeds, --kmeans-seeds",
    ),
    (
        "Start and end markers",
        "Read by the encoder, neither attended to nor ranked.",
        "--exclude",
    ),
    (
        "Adversary: half or whole TVD, JSD of what, accuracy or F1",
        "Half in the loss, as Wiegreffe & Pinter's code; TVD whole and half, JSD of attention and "
        "of outputs, accuracy and F1 are reported.",
        "--tvd, --strength, --adversary-epochs",
    ),
    (
        "Table 5: tau higher, or not lower",
        "Not lower.",
        "–",
    ),
)
