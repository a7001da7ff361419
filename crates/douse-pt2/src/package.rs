//! A `.pt2` archive: which of its layouts it has, and where things are in it.

use crate::archive::Archive;
use crate::foreign;
use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};

/// The model of an archive that holds one, as PyTorch names it.
pub(crate) const DEFAULT_MODEL: &str = "model";
const OLDER_PROGRAM: &str = "serialized_exported_program.json";

/// An open `.pt2` archive.
pub(crate) struct Package {
    archive: Archive,
    layout: Layout,
    pub models: Vec<String>,
}

enum Layout {
    /// PyTorch 2.8 and later: everything in one folder, whose name (with its slash) is held here.
    Folder(String),
    /// Before: four entries at the top.
    Flat,
}

/// Where one kind of tensors is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Weights,
    Constants,
}

impl Package {
    /// Opens an archive, refusing every other kind of file by name.
    pub(crate) fn open(bytes: Bytes) -> Result<Package> {
        if !bytes.starts_with(b"PK\x03\x04") && !bytes.starts_with(b"PK\x05\x06") {
            return Err(foreign::not_a_zip(&bytes));
        }
        let archive = Archive::open(bytes)?;
        let (layout, models) = if archive.names().any(|name| name == OLDER_PROGRAM) {
            (Layout::Flat, vec![DEFAULT_MODEL.to_owned()])
        } else if let Some(folder) = folder(&archive) {
            let models = models(&archive, &folder);
            (Layout::Folder(folder), models)
        } else {
            return Err(foreign::not_a_pt2(archive.names()));
        };
        let mut package = Package { archive, layout, models };
        package.check()?;
        Ok(package)
    }

    fn check(&mut self) -> Result<()> {
        let Layout::Folder(folder) = &self.layout else { return Ok(()) };
        let expected = [("archive_format", "pt2"), ("archive_version", "0"), ("byteorder", "little")];
        for (name, value) in expected {
            let Some(bytes) = self.archive.entry(&format!("{folder}{name}"))? else { continue };
            let text = String::from_utf8_lossy(bytes.get(..64).unwrap_or(&bytes)).trim().to_owned();
            if text != value {
                let message = format!("the archive says that its {name} is `{text}`; only `{value}` can be read");
                return Err(Error::new(Code::NotSupported, message));
            }
        }
        if self.models.is_empty() {
            return Err(foreign::not_a_pt2(self.archive.names()));
        }
        Ok(())
    }

    /// The name of the model to read: the one asked for, or the only one, or the one called `model`.
    pub(crate) fn choose(&self, wanted: Option<&str>) -> Result<String> {
        let choice = match (wanted, self.models.as_slice()) {
            (Some(name), models) => models.iter().find(|model| *model == name),
            (None, [only]) => Some(only),
            (None, models) => models.iter().find(|model| *model == DEFAULT_MODEL),
        };
        choice.cloned().ok_or_else(|| {
            let held = self.models.join("`, `");
            let message = match wanted {
                Some(name) => format!("the archive holds no model `{name}`; it holds `{held}`"),
                None => format!("the archive holds several models, name one of them: `{held}`"),
            };
            Error::new(Code::NotFound, message)
        })
    }

    /// The program of a model, as JSON, and the name of the entry it is in.
    pub(crate) fn program(&mut self, model: &str) -> Result<(Bytes, String)> {
        let name = match &self.layout {
            Layout::Folder(folder) => format!("{folder}models/{model}.json"),
            Layout::Flat => OLDER_PROGRAM.to_owned(),
        };
        match self.archive.checked_entry(&name)? {
            Some(bytes) => Ok((bytes, name)),
            None => Err(Error::invalid_program(format!("the archive holds no `{name}`"))),
        }
    }

    /// The list of a model's tensors of one kind, as JSON; `None` if there is none or the layout has no lists.
    pub(crate) fn config(&mut self, model: &str, part: Part) -> Result<Option<(Bytes, String)>> {
        let Layout::Folder(folder) = &self.layout else { return Ok(None) };
        let name = match part {
            Part::Weights => format!("{folder}data/weights/{model}_weights_config.json"),
            Part::Constants => format!("{folder}data/constants/{model}_constants_config.json"),
        };
        Ok(self.archive.checked_entry(&name)?.map(|bytes| (bytes, name)))
    }

    /// The bytes of a tensor or object that a list names.
    pub(crate) fn payload(&mut self, part: Part, path: &str) -> Result<Option<Bytes>> {
        let Layout::Folder(folder) = &self.layout else { return Ok(None) };
        let place = if part == Part::Weights { "data/weights" } else { "data/constants" };
        self.archive.entry(&format!("{folder}{place}/{path}"))
    }

    /// Whether tensors are in pickles, as before PyTorch 2.8.
    pub(crate) fn is_flat(&self) -> bool {
        matches!(self.layout, Layout::Flat)
    }

    /// The pickle of the tensors of one kind, in the older layout, and the name of its entry.
    pub(crate) fn pickle(&mut self, part: Part) -> Result<Option<(Bytes, &'static str)>> {
        let name = match part {
            Part::Weights => "serialized_state_dict.pt",
            Part::Constants => "serialized_constants.pt",
        };
        Ok(self.archive.entry(name)?.map(|bytes| (bytes, name)))
    }

    /// The pickle of the example inputs.
    pub(crate) fn example_inputs(&mut self, model: &str) -> Result<Option<Bytes>> {
        let name = match &self.layout {
            Layout::Folder(folder) => format!("{folder}data/sample_inputs/{model}.pt"),
            Layout::Flat => "serialized_example_inputs.pt".to_owned(),
        };
        self.archive.entry(&name)
    }
}

/// The folder that holds everything, with its slash: that of `archive_format`, or else of the first model.
fn folder(archive: &Archive) -> Option<String> {
    let marked = archive.names().find_map(|name| {
        let folder = name.strip_suffix("archive_format")?;
        (folder.is_empty() || folder.ends_with('/')).then_some(folder)
    });
    let modelled = || {
        archive.names().find_map(|name| {
            let (folder, model) = name.split_once("models/")?;
            (model.ends_with(".json") && (folder.is_empty() || folder.ends_with('/'))).then_some(folder)
        })
    };
    marked.or_else(modelled).map(str::to_owned)
}

fn models(archive: &Archive, folder: &str) -> Vec<String> {
    let model =
        |name: &str| Some(name.strip_prefix(folder)?.strip_prefix("models/")?.strip_suffix(".json")?.to_owned());
    archive.names().filter_map(model).collect()
}
