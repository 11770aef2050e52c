module reportcard.example/golang

go 1.25
