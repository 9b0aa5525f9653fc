//! The images, built by `make images`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::sync::OnceCell;

use crate::world::ROOT;

/// An image of this repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    Ccm,
    Mock,
    Python,
    DigitalOcean,
}

impl Image {
    const ALL: [Self; 4] = [Self::Ccm, Self::Mock, Self::Python, Self::DigitalOcean];

    fn name(self) -> &'static str {
        match self {
            Self::Ccm => "ccm",
            Self::Mock => "provider-mock",
            Self::Python => "provider-python",
            Self::DigitalOcean => "provider-digitalocean",
        }
    }

    /// The image's name in the manifests, with this version's tag.
    pub fn reference(self) -> String {
        self.tagged(env!("CARGO_PKG_VERSION"))
    }

    pub fn tagged(self, tag: &str) -> String {
        format!("localhost/grpc-ccm/{}:{tag}", self.name())
    }
}

/// Builds the images once for this process. Returns their archives.
pub async fn build() -> Vec<PathBuf> {
    static BUILT: OnceCell<Vec<PathBuf>> = OnceCell::const_new();
    let build = async || tokio::task::spawn_blocking(make).await.unwrap();
    BUILT.get_or_init(build).await.clone()
}

/// `CCM_E2E_IMAGES` names a directory with archives that were built already.
fn make() -> Vec<PathBuf> {
    if let Some(ready) = std::env::var_os("CCM_E2E_IMAGES") {
        let archive = |image: Image| Path::new(&ready).join(format!("{}.oci.tar", image.name()));
        return Image::ALL.map(archive).to_vec();
    }
    let target = target();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => panic!("no images are built for {other}"),
    };
    let status = Command::new("make")
        .args(["-C", ROOT, "images"])
        .arg(format!("PLATFORMS=linux/{architecture}"))
        .arg(format!("IMAGES={}", Image::ALL.map(Image::name).join(" ")))
        .env("CARGO_TARGET_DIR", &target)
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "make images: {status}");
    let archive = |image: Image| target.join(format!("images/{}.oci.tar", image.name()));
    Image::ALL.map(archive).to_vec()
}

/// Cargo's target directory: this executable is in `TARGET/PROFILE/deps`.
fn target() -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    executable.ancestors().nth(3).unwrap().to_owned()
}
