"""The generator of the session that `refold demo` compacts: an agent mends a bug in an imaginary project."""
