//! Sessions with a provider in memory, under paused time.

mod calling;
mod connecting;
mod draining;
mod ending;
mod fake;
mod leading;
mod sdk;
mod weighing;
