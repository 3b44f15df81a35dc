"""What the paper and its code leave open or do otherwise: the reading here, and its option."""

from __future__ import annotations

POINTS = (
    (
        "Which epoch is kept",
        "The one of the best AUC on dev. The published code takes the best AUC on test, and leaves "
        "dev unused.",
        "none: a choice by test documents would flatter every model",
    ),
    (
        "Total variation distance",
        "Both forms are written: |p − p'|, which is that of the two-class outputs, and half of it, "
        "as the published code reports.",
        "columns tvd and tvd_halved",
    ),
    (
        "λ",
        "The loss is factor · |p − p'| − λ · KL(adversary ‖ base) with the factor 0.5, as "
        "published; with the factor 1 the same model needs 2λ.",
        "--tvd",
    ),
    (
        "The adversary's class weights",
        "None. In the published code each batch's loss is multiplied by the sum of its class "
        "weights, which Adam hardly sees.",
        "none",
    ),
    (
        "The adversary's epoch",
        "The lowest training loss, at most 80 epochs, 10 without a lower one, as published.",
        "--adversary-epochs, --adversary-patience",
    ),
    (
        "Masked positions",
        "Divergences are sums over the words alone, from logarithms of the weights, which stay "
        "finite where weights underflow.",
        "none",
    ),
    (
        "Lent weights",
        "Each document, of train, dev and test, has the lender's weights for it, found by the "
        "document and the same to the bit. The published code never passes them to the model.",
        "none",
    ),
    (
        "The adversary of Table 3",
        "Trained with λ = 0.001, not with the values of Table 4.",
        "--lender",
    ),
    (
        "Output difference over seeds",
        "Mean over the seeds of |p − p'|; the divergence of attention is the median over the "
        "seeds. The published notebook subtracts the one from the other before averaging.",
        "none",
    ),
)
