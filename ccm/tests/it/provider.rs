//! Providers that hang, lie, die, restart or speak another version.
