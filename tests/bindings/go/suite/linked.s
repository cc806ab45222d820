// So that the compiler takes a declaration without a body: see setOpt.
