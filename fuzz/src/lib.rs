//! Nothing: what is run lies in `bodies/`, included by the targets and by tests on stable.
