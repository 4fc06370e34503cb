"""Generator of the session that `refold demo` compacts: an agent fixes a bug in an imaginary
project."""
