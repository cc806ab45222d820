//! The database's streams of changes, as the client library asks for them: a call of the C
//! library's each.

use crate::endpoint::{Foundation, try_reply};
use crate::native;
use plinth_client::{CaptureConsumer, CapturedStream, ChangeCapture};
use plinth_env::reply::Reply;
use plinth_types::{Changes, KeyRange};
use std::sync::Arc;

/// A consumer behind the C library.
struct Consumer(Arc<native::Consumer>);

impl ChangeCapture for Foundation {
    fn register(&self, name: &[u8], range: &KeyRange) -> Reply<u64> {
        try_reply(|| {
            Ok(self.inner.database.register_stream(name, range)?.reply(|ready| ready.uint64()))
        })
    }

    fn remove(&self, name: &[u8]) -> Reply<()> {
        try_reply(|| Ok(self.inner.database.remove_stream(name)?.reply(|ready| ready.done())))
    }

    fn list(&self) -> Reply<Vec<CapturedStream>> {
        try_reply(|| Ok(self.inner.database.list_streams()?.reply(|ready| ready.streams())))
    }

    fn consume(&self, name: &[u8]) -> Reply<Arc<dyn CaptureConsumer>> {
        try_reply(|| {
            let created = self.inner.database.create_consumer(name)?;
            Ok(created.reply(|ready| {
                let consumer: Arc<dyn CaptureConsumer> =
                    Arc::new(Consumer(Arc::new(ready.consumer()?)));
                Ok(consumer)
            }))
        })
    }
}

impl CaptureConsumer for Consumer {
    fn next(&self) -> Reply<Changes> {
        self.0.consume().reply(|ready| ready.changes())
    }

    fn acknowledge(&self) -> Reply<()> {
        self.0.acknowledge().reply(|ready| ready.done())
    }
}
