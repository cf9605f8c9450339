//! Empty: the code is in `bodies/`, which the targets and the tests on stable include.
