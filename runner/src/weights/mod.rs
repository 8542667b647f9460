//! Initial weights from files: what a network learnt elsewhere.
