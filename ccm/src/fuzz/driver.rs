//! Plays each target on stable Rust: its seeds, the inputs that were found before, and mutations of
//! both. The mutations come from a seeded generator.
//!
//! `FUZZ_ROUNDS` sets how many mutations are played, and `FUZZ_SEED` which.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{TARGETS, Target, target};

/// The longest mutated input, in bytes.
const LONGEST: usize = 4_096;

fn regressions(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions");
    let Ok(files) = std::fs::read_dir(folder.join(target.name)) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// The number in an environment variable.
fn given(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| {
        panic!("{name}={text}: expected a whole number");
    }))
}

fn play(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.play)(input))) {
        let file = std::env::temp_dir().join(format!("{}-{}", target.name, input.len()));
        std::fs::write(&file, input).unwrap();
        eprintln!(
            "{}: this input breaks it: {} (keep it in fuzz/regressions/{})",
            target.name,
            file.display(),
            target.name
        );
        resume_unwind(panic);
    }
}

fn mutated(corpus: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let any = |random: &mut StdRng| corpus[random.random_range(0..corpus.len())].clone();
    let mut input = any(random);
    for _ in 0..random.random_range(1..=6) {
        let at = random.random_range(0..=input.len());
        let length = random.random_range(0..=input.len() - at).min(64);
        match random.random_range(0..8) {
            0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            1 if at < input.len() => input[at] = random.random(),
            2 => input.insert(at, random.random()),
            3 => drop(input.drain(at..at + length)),
            4 => {
                let piece = input[at..at + length].to_vec();
                input.splice(at..at, piece);
            }
            5 => {
                let other = any(random);
                let from = random.random_range(0..=other.len());
                input.truncate(at);
                input.extend(&other[from..]);
            }
            6 => {
                let interesting = [0, 1, 0x7f, 0x80, 0xff, b'/', b',', b'"', b'\n'];
                let byte = interesting[random.random_range(0..interesting.len())];
                input[at..at + length].fill(byte);
            }
            _ => {
                let more = random.random_range(0..32);
                input.extend((0..more).map(|_| random.random::<u8>()));
            }
        }
    }
    input.truncate(LONGEST);
    input
}

/// Plays the target of this name.
fn drive(name: &str) {
    let target = target(name).unwrap();
    let mut corpus = (target.seeds)();
    corpus.extend(regressions(target));
    corpus.push(Vec::new());
    for input in &corpus {
        play(target, input);
    }
    let rounds = given("FUZZ_ROUNDS").unwrap_or(target.rounds as u64);
    let mut random = StdRng::seed_from_u64(given("FUZZ_SEED").unwrap_or_default());
    for _ in 0..rounds {
        play(target, &mutated(&corpus, &mut random));
    }
}

macro_rules! targets {
    ($($(#[$about:meta])* $name:ident)*) => {
        $(
            $(#[$about])*
            #[test]
            fn $name() {
                drive(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_played() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets! {
    answers
    decoding
    connection
    nodes
    services
    balancers
    certificates
    headers
    reviews
    parsers
    brake
    events
}
