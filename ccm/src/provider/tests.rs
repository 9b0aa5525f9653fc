//! Sessions with a provider, most of them in memory and under paused time.

mod calling;
mod connecting;
mod draining;
mod ending;
mod fake;
mod leading;
mod sdk;
mod weighing;
