//! Drops the fields of watched objects that nobody reads (▲M8).
