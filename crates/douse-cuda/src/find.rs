//! Where a library of CUDA may be.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A library.
pub(crate) struct Wanted {
    /// The environment variable that names a file.
    pub variable: &'static str,
    /// Names that the system's loader looks for, the newest first.
    pub names: &'static [&'static str],
    /// Folders of the Python packages that have it, from `site-packages` on.
    pub packages: &'static [&'static str],
}

/// Variables that hold the folder of a CUDA toolkit.
const TOOLKITS: &[&str] = &["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];

/// Variables that hold a folder with an installation of Python.
const ENVIRONMENTS: &[&str] = &["VIRTUAL_ENV", "CONDA_PREFIX"];

/// Files and names to try, in order. What the variable says alone where it is set: who names a file means it.
pub(crate) fn candidates(wanted: &Wanted) -> Vec<OsString> {
    match env::var_os(wanted.variable).filter(|value| !value.is_empty()) {
        Some(named) => vec![named],
        None => {
            let mut all: Vec<OsString> = wanted.names.iter().map(OsString::from).collect();
            all.extend(toolkits().iter().flat_map(|folder| in_folder(folder, wanted)));
            all.extend(pythons().iter().flat_map(|prefix| in_python(prefix, wanted)));
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

/// The libraries of the packages of a Python installation.
fn in_python(prefix: &Path, wanted: &Wanted) -> Vec<OsString> {
    let versions = ["lib", "lib64"].map(|lib| children(&prefix.join(lib), |name| name.starts_with("python3")));
    let mut sites: Vec<PathBuf> = Vec::new();
    for version in versions.into_iter().flatten() {
        sites.extend(["site-packages", "dist-packages"].map(|site| version.join(site)));
    }
    sites.push(prefix.join("Lib/site-packages"));
    sites
        .iter()
        .flat_map(|site| wanted.packages.iter().flat_map(|package| in_folder(&site.join(package), wanted)))
        .collect()
}

fn in_folder(folder: &Path, wanted: &Wanted) -> Vec<OsString> {
    let files = wanted.names.iter().map(|name| folder.join(name)).filter(|file| file.exists());
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
        let wanted =
            Wanted { variable: "", names: &["libx.so.2", "libx.so.1"], packages: &["nvidia/new/lib", "nvidia/x/lib"] };
        for (version, package) in [("python3.9", wanted.packages[1]), ("python3.11", wanted.packages[0])] {
            let folder = prefix.join("lib").join(version).join("site-packages").join(package);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(wanted.names[0]), "").unwrap();
        }
        let found = in_python(&prefix, &wanted);
        std::fs::remove_dir_all(&prefix).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|file| Path::new(file).starts_with(&prefix)), "{found:?}");
    }
}
