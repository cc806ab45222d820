module plinth/tests/bindings/go

go 1.21

require github.com/apple/foundationdb/bindings/go v0.0.0-20260629183922-51e1c42eb9a8
