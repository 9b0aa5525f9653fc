//! Compiles the mock's control service with protox: nobody needs a `protoc`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let root = PathBuf::from("proto");
    let descriptors = protox::Compiler::new([&root])?
        .include_source_info(true)
        .include_imports(true)
        .open_files([root.join("mock/v1/control.proto")])?
        .file_descriptor_set();
    tonic_prost_build::configure()
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
