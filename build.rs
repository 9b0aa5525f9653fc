//! Compiles `proto/` with protox: nobody needs a `protoc`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let root = PathBuf::from("proto");
    let mut files: Vec<PathBuf> = std::fs::read_dir(root.join("cloudprovider/v1alpha1"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|ext| ext == "proto"));
    files.sort();

    let descriptors = protox::Compiler::new([&root])?
        .include_source_info(true)
        .include_imports(true)
        .open_files(&files)?
        .file_descriptor_set();
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(
        out.join("descriptors.bin"),
        prost::Message::encode_to_vec(&descriptors),
    )?;
    tonic_prost_build::configure()
        .btree_map(".")
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
