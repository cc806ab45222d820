//! The resource of metrics: who they are of. Its service is `job` and `instance` of each series;
//! all else that is known of it stands once, in `target_info`.

use super::attributes::{Attributes, Labels};
use super::head::Places;

/// What identifies a service, and stands in `job` and `instance`.
const NAME: &str = "service.name";
const NAMESPACE: &str = "service.namespace";
const INSTANCE: &str = "service.instance.id";

/// Who metrics are of.
#[derive(Debug, Default)]
pub(super) struct Resource {
    pub(super) job: String,
    pub(super) instance: String,
    /// The tags of its `target_info`, if it has one.
    pub(super) info: Option<Vec<u8>>,
    /// Why nothing of it is taken.
    pub(super) refused: Option<String>,
    /// The latest time of its points.
    pub(super) latest: Option<i64>,
}

impl Resource {
    /// That of a head: where its attributes are.
    ///
    /// # Errors
    /// If one is none.
    pub(super) fn of(bytes: &[u8], places: &Places) -> Result<Self, String> {
        let mut attributes = Attributes::default();
        let pushed = places.0.iter().map(|place| attributes.push(&bytes[place.clone()]));
        match pushed.collect::<Result<(), _>>() {
            Ok(()) => Self::with(&attributes),
            Err(why) => {
                let refused = Some(format!("a resource has {why}"));
                Ok(Self { refused, ..Self::default() })
            }
        }
    }

    fn with(attributes: &Attributes<'_>) -> Result<Self, String> {
        let mut texts = attributes.texts()?;
        let of = |wanted: &str| {
            texts.iter().find(|(key, _)| *key == wanted).map(|(_, text)| text.clone())
        };
        let (name, namespace) = (of(NAME), of(NAMESPACE));
        let job = match (name, namespace) {
            (Some(name), Some(namespace)) => format!("{namespace}/{name}"),
            (name, _) => name.unwrap_or_default(),
        };
        let instance = of(INSTANCE).unwrap_or_default();
        texts.retain(|(key, _)| ![NAME, NAMESPACE, INSTANCE].contains(key));
        let mut resource = Self { job, instance, ..Self::default() };
        let is_known = !resource.job.is_empty() || !resource.instance.is_empty();
        if is_known && !texts.is_empty() {
            match Labels::of(&texts) {
                Ok(mut labels) => {
                    resource.label(&mut labels);
                    resource.info = Some(labels.tags(None));
                }
                Err(why) => resource.refused = Some(format!("of a resource {why}")),
            }
        }
        Ok(resource)
    }

    /// Sets the labels that each of its series has.
    pub(super) fn label(&self, labels: &mut Labels) {
        labels.set("job", &self.job);
        labels.set("instance", &self.instance);
    }
}
