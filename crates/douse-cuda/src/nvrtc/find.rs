//! Where NVRTC may be.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Names that the system's loader looks for, the newest first.
#[cfg(windows)]
const NAMES: &[&str] = &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] = &["libnvrtc.so.13", "libnvrtc.so.12"];

/// Folders of the Python packages `nvidia-cuda-nvrtc` (13 and later) and `nvidia-cuda-nvrtc-cu12`, from `site-packages` on.
const PACKAGES: &[&str] = &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];

/// Variables that hold the folder of a CUDA toolkit.
const TOOLKITS: &[&str] = &["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];

/// Variables that hold a folder with an installation of Python.
const ENVIRONMENTS: &[&str] = &["VIRTUAL_ENV", "CONDA_PREFIX"];

/// Files and names to try, in order. `DOUSE_NVRTC` alone where it is set: who names a file means it.
pub(super) fn candidates() -> Vec<OsString> {
    match env::var_os("DOUSE_NVRTC").filter(|value| !value.is_empty()) {
        Some(named) => vec![named],
        None => {
            let mut all: Vec<OsString> = NAMES.iter().map(OsString::from).collect();
            all.extend(toolkits().iter().flat_map(|folder| in_folder(folder)));
            all.extend(pythons().iter().flat_map(|prefix| in_python(prefix)));
            all
        }
    }
}

/// Folders of CUDA toolkits' libraries.
fn toolkits() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = TOOLKITS.iter().filter_map(env::var_os).map(PathBuf::from).collect();
    roots.push("/opt/cuda".into());
    // `cuda` is a link to the one in use; others are `cuda-13.0`, the newest first.
    roots.extend(children(Path::new("/usr/local"), |name| name.starts_with("cuda")));
    let libraries = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
    roots.iter().flat_map(|root| libraries.map(|library| root.join(library))).collect()
}

/// Folders with an installation of Python: active environments, and those of the interpreters on the path.
fn pythons() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = ENVIRONMENTS.iter().filter_map(env::var_os).map(PathBuf::from).collect();
    all.extend(env::var_os("HOME").map(|home| Path::new(&home).join(".local")));
    let path = env::var_os("PATH").unwrap_or_default();
    let interpreters = env::split_paths(&path).filter(|folder| folder.join("python3").exists());
    all.extend(interpreters.filter_map(|folder| Some(folder.parent()?.to_path_buf())));
    all.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut seen = BTreeSet::new();
    all.retain(|prefix| seen.insert(prefix.clone()));
    all
}

/// The NVRTCs of the packages of a Python installation.
fn in_python(prefix: &Path) -> Vec<OsString> {
    let versions = ["lib", "lib64"].map(|lib| children(&prefix.join(lib), |name| name.starts_with("python3")));
    let mut sites: Vec<PathBuf> = Vec::new();
    for version in versions.into_iter().flatten() {
        sites.extend(["site-packages", "dist-packages"].map(|site| version.join(site)));
    }
    sites.push(prefix.join("Lib/site-packages"));
    sites.iter().flat_map(|site| PACKAGES.iter().flat_map(|package| in_folder(&site.join(package)))).collect()
}

fn in_folder(folder: &Path) -> Vec<OsString> {
    let files = NAMES.iter().map(|name| folder.join(name)).filter(|file| file.exists());
    files.map(PathBuf::into_os_string).collect()
}

/// What lies in a folder under such names, the last name first: the newest, where names end in versions.
fn children(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let names: BTreeSet<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
    let wanted = |name: &&OsString| OsStr::to_str(name).is_some_and(&wanted);
    names.iter().rev().filter(wanted).map(|name| folder.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_of_a_python_installation_are_found() {
        let prefix = env::temp_dir().join(format!("douse-find-{}", std::process::id()));
        for (version, package) in [("python3.9", PACKAGES[1]), ("python3.11", PACKAGES[0])] {
            let folder = prefix.join("lib").join(version).join("site-packages").join(package);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(NAMES[0]), "").unwrap();
        }
        let found = in_python(&prefix);
        std::fs::remove_dir_all(&prefix).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|file| Path::new(file).starts_with(&prefix)), "{found:?}");
    }
}
