//! Loopback ports that nothing listens on.

use std::{
    env,
    fs::{File, OpenOptions},
    net::{Ipv4Addr, TcpListener},
    process,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

/// This range is below the one for outgoing connections (Linux: 32768 and up). Such a connection
/// could otherwise take the port of an API server that a test has just killed and
/// will start again.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;
/// The range is divided into blocks. A process that asks for ports keeps one block, if one is free.
/// A block is larger than the number of ports that a process asks for, so that it does not get a
/// port a second time.
const BLOCKS: u32 = 12;
const BLOCK: u32 = COUNT / BLOCKS;

/// A port that is free at this moment. A process that does not ask here may take it at any time.
///
/// Each call begins at the next port of the process's own block.
pub fn free_port() -> u16 {
    static OWN: OnceLock<Option<Block>> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // If all blocks are taken, processes share the whole range. Each begins at another port, so two
    // of them rarely try the same one.
    let (start, count) = match OWN.get_or_init(Block::claim) {
        Some(own) => (FIRST + own.number * BLOCK, BLOCK),
        None => (FIRST, COUNT),
    };
    let begin = process::id().wrapping_mul(97);
    for _ in 0..count {
        let offset = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count;
        let port = u16::try_from(start + offset).unwrap_or_default();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    // If all these ports are taken: any port that the system offers.
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_or(0, |address| address.port())
}

/// A block of ports that belongs to this process until it ends.
struct Block {
    number: u32,
    /// The system unlocks the file when the process ends, however it ends.
    _locked: File,
}

impl Block {
    /// A block that no other process has. `None` if there is none.
    fn claim() -> Option<Self> {
        (0..BLOCKS).find_map(|number| {
            let path = env::temp_dir().join(format!("ccm-testenv-ports-{number}.lock"));
            let mut how = OpenOptions::new();
            let file = how
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .ok()?;
            file.try_lock().ok()?;
            Some(Self {
                number,
                _locked: file,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Block;

    #[test]
    fn nobody_gets_a_block_that_another_one_has() {
        // Other processes may have all blocks but one.
        if let (Some(one), Some(other)) = (Block::claim(), Block::claim()) {
            assert_ne!(one.number, other.number);
        }
    }
}
