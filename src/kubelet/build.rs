//! Generates the messages and services of `proto/`. protox parses the files, so no protoc has to be installed.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // Each interface has a directory of its own: names of packages (`v1`, `v1beta1`) are not unique in Kubernetes.
    for name in [
        "deviceplugin",
        "podresources",
        "dra",
        "drabeta1",
        "drahealth",
        "pluginregistration",
    ] {
        let file = format!("proto/{name}.proto");
        println!("cargo::rerun-if-changed={file}");
        let descriptors = protox::compile([&file], ["proto"])?;
        let into = out.join(name);
        std::fs::create_dir_all(&into)?;
        tonic_prost_build::configure().out_dir(into).compile_fds(descriptors)?;
    }
    Ok(())
}
