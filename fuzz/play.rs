//! Plays the target that `FUZZ_TARGET` names. With `FUZZ_SEEDS=FOLDER` it first writes the target's
//! seeds there.
#![no_main]

use std::sync::LazyLock;

use ccm::fuzz::{Target, target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    target(&name).expect("FUZZ_TARGET names a target of ccm/src/fuzz.rs")
});

fn write_seeds() {
    let Some(folder) = std::env::var_os("FUZZ_SEEDS") else {
        return;
    };
    for (number, seed) in (TARGET.seeds)().iter().enumerate() {
        let file = std::path::Path::new(&folder).join(format!("seed-{number}"));
        std::fs::write(file, seed).expect("FUZZ_SEEDS is a folder that can be written");
    }
}

libfuzzer_sys::fuzz_target!(
    init: write_seeds(),
    |input: &[u8]| (TARGET.play)(input)
);
