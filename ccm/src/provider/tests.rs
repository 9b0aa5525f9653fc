//! Sessions with a provider in memory, under paused time.

mod calling;
mod connecting;
mod fake;
mod leading;
mod sdk;
