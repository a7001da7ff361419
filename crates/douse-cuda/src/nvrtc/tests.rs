use super::*;

/// NVRTC, where it is installed; a note otherwise.
fn nvrtc() -> Option<Nvrtc> {
    match Nvrtc::open() {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn source(architecture: &str, text: &str) -> Source {
    Source {
        name: "test.cu".into(),
        text: text.into(),
        architecture: architecture.parse().unwrap(),
        options: vec!["--std=c++17".into()],
    }
}

const ADD: &str = "extern \"C\" __global__ void add(float* x) {\n  x[threadIdx.x] += 1.0f;\n}\n";

#[test]
fn sources_become_cubins_and_ptx() {
    let Some(nvrtc) = nvrtc() else { return };
    let sources = ["sm_80", "sm_90a", "sm_120", "compute_80"].map(|architecture| source(architecture, ADD));
    let code = nvrtc.compile_all(&sources, None).unwrap();
    assert!(code[..3].iter().all(|cubin| cubin.starts_with(b"\x7fELF")));
    assert!(String::from_utf8_lossy(&code[3]).contains(".target sm_80"));
}

#[test]
fn a_fault_shows_its_line() {
    let Some(nvrtc) = nvrtc() else { return };
    let error = nvrtc.compile(&source("sm_80", "int f() {\n  return missing_name;\n}\n")).unwrap_err();
    assert!(error.message.contains("test.cu(2): error"), "{error}");
    assert!(error.message.contains("in: return missing_name;"), "{error}");
}

#[test]
fn an_architecture_that_is_not_known_is_refused() {
    let Some(nvrtc) = nvrtc() else { return };
    nvrtc.check("sm_90a".parse().unwrap()).unwrap();
    let error = nvrtc.check("sm_20".parse().unwrap()).unwrap_err();
    assert!(error.code == Code::NotSupported && error.message.contains("sm_90"), "{error}");
}

#[test]
fn code_is_compiled_once() {
    let Some(nvrtc) = nvrtc() else { return };
    let folder = std::env::temp_dir().join(format!("douse-nvrtc-{}", std::process::id()));
    let cache = Cache::at(folder.clone(), 1 << 20);
    let sources = [source("sm_80", ADD), source("sm_90", ADD)];
    let first = nvrtc.compile_all(&sources, Some(&cache)).unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    assert_eq!(nvrtc.compile_all(&sources, Some(&cache)).unwrap(), first);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_missing_nvrtc_says_how_to_get_it() {
    let error = Nvrtc::open_as(&["/nowhere/libnvrtc.so.13".into()]).err().unwrap();
    assert_eq!(error.code, Code::NotFound);
    for part in ["/nowhere/libnvrtc.so.13", "pip install nvidia-cuda-nvrtc", "DOUSE_NVRTC"] {
        assert!(error.message.contains(part), "{error}");
    }
}
