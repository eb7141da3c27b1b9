package fence

// Statements are what the document shows.
var Statements = []string{mysqlUpsert, postgresUpsert, sqliteUpsert}
