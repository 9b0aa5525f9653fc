//! Who leads, and how leading ends.
