//! An API server that fails, throttles, dies and comes back.
